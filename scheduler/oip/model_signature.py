"""Inputs and outputs of a model, as its metadata describe them; requests are compared with them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scheduler.model.message_text import listed, quoted
from scheduler.oip.datatypes import DATATYPES, Datatype
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.tensor import Tensor


class InputSignature(NamedTuple):
    """An input of a model.

    Attributes:
        datatype: datatype of the elements; None: any.
        shape: sizes of all dimensions, rows first; -1: any size. None: any shape.
        row_shape: sizes of the dimensions but the rows.
    """

    datatype: Datatype | None
    shape: tuple[int, ...] | None
    row_shape: tuple[int, ...]

    def check(self, tensor: Tensor, owner: str) -> None:
        """Compare an input with what the model takes; ``owner`` names the model in the message.

        Raises:
            MessageError: the model does not take it.
        """
        datatype, shape = tensor.datatype, tensor.shape
        if self.datatype is not None and datatype is not self.datatype:
            raise MessageError(
                f"input {quoted(tensor.name)} has datatype {datatype.name}; "
                f"{owner} takes {self.datatype.name}"
            )
        if shape[1:] == self.row_shape or self.shape is None or self._fits(shape):
            return
        raise MessageError(
            f"input {quoted(tensor.name)} has shape {_text(shape)}; "
            f"{owner} takes {_text(self.shape)}"
        )

    def _fits(self, shape: tuple[int, ...]) -> bool:
        described = self.shape or ()
        if _matches(shape[1:], self.row_shape):
            return True
        if len(described) < len(shape):  # some metadata leave out the rows
            return described[0] >= 0 and _matches(shape[1:], described)
        # Servers take one number a row as a list, too.
        return _matches((*shape[1:], *[1] * (len(described) - len(shape))), self.row_shape)


class ModelSignature(NamedTuple):
    """Inputs by name, and names of outputs; none where the metadata have none."""

    inputs: dict[str, InputSignature]
    outputs: tuple[str, ...]


Owner = tuple[str, ModelSignature | None]
"""Name of a stage, and the signature of its model, if it is known."""


def read_signature(metadata: Mapping[str, Any]) -> ModelSignature:
    """Read the protocol's metadata object; what is invalid in it describes nothing."""
    inputs = _entries(metadata, "inputs")
    return ModelSignature(
        {} if inputs is None else {name: _input(entry) for name, entry in inputs.items()},
        tuple(_entries(metadata, "outputs") or ()),
    )


def check_request(request: InferRequest, first: Sequence[Owner], last: Sequence[Owner]) -> None:
    """Compare a request with the models of the stages that get its inputs, and of the last ones.

    Inputs may be missing, because metadata do not say which are optional.

    Raises:
        MessageError: it has an input that none of them takes so, or requests an unknown output.
    """
    for tensor in request.inputs:
        is_known = False
        for name, signature in first:
            if signature is None or not signature.inputs:
                is_known = True
                continue
            described = signature.inputs.get(tensor.name)
            if described is not None:
                described.check(tensor, name)
                is_known = True
        if not is_known:
            takers = [f"{name} takes {_names(own.inputs)}" for name, own in first if own]
            raise MessageError(f"there is no input {quoted(tensor.name)}; {listed(takers)}")
    for output in request.outputs:
        for _, signature in last:
            if signature is None or not signature.outputs or output.name in signature.outputs:
                break
        else:
            owners = [f"{name} has {_names(own.outputs)}" for name, own in last if own]
            raise MessageError(f"there is no output {quoted(output.name)}; {listed(owners)}")


def _entries(metadata: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]] | None:
    """Return the tensors of metadata by name; None if they cannot be read."""
    entries = metadata.get(key)
    if not isinstance(entries, list):
        return None
    tensors: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            return None
        tensors[entry["name"]] = entry
    return tensors


def _input(entry: Mapping[str, Any]) -> InputSignature:
    datatype = entry.get("datatype")
    described = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    sizes = entry.get("shape")
    if not isinstance(sizes, list | tuple) or not sizes:
        return InputSignature(described, None, ())
    try:
        shape = tuple([int(size) for size in sizes])  # JSON of int64 values may have texts
    except (TypeError, ValueError, OverflowError):
        return InputSignature(described, None, ())
    return InputSignature(described, shape, shape[1:])


def _matches(sizes: tuple[int, ...], described: tuple[int, ...]) -> bool:
    if len(sizes) != len(described):
        return False
    for size, expected in zip(sizes, described, strict=True):
        if expected >= 0 and size != expected:
            return False
    return True


def _text(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _names(names: Any) -> str:
    return listed([quoted(name) for name in names])
