"""Answers: those of model servers, read; those to clients, written."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from pydantic_core import to_json

from scheduler.oip.datatypes import BYTES
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.known_headers import (
    SHORT_LENGTHS,
    TensorLayout,
    cache_header,
    layouts,
    tensors_of,
)
from scheduler.oip.message import Message, decode, encode, entries
from scheduler.oip.tensor import Tensor
from scheduler.oip.tensor_reader import ReadPart, body_part, read_tensor
from scheduler.oip.tensor_writer import write_tensor

_HEADERS: Final[dict[bytes, tuple[TensorLayout, ...]]] = {}
_WRITTEN: Final[dict[Hashable, tuple[bytes, bytes]]] = {}
"""Headers of answers by their model and tensors: the parts before and after the id."""


def parse_response(
    body: bytes | memoryview, header_length: str | None, *, rows: int
) -> tuple[Tensor, ...]:
    """Read the outputs of a model server; they are views of the body.

    Args:
        body: complete body.
        header_length: value of the HTTP header ``Inference-Header-Content-Length``, if there is.
        rows: number of rows of the batch, which each output must have.

    Raises:
        MessageError: the answer is invalid, and so is it for each request of the batch.
    """
    view, header = memoryview(body), b""
    if header_length in SHORT_LENGTHS:
        header = bytes(view[: int(header_length)])
        layout = _HEADERS.get(header)
        if layout is not None and layout[0].shape[0] == rows:
            outputs = tensors_of(layout, view[len(header) :])
            if outputs is not None:
                return outputs
    with errors_of_server():
        document, binary = decode(view, header_length)
        outputs = read_outputs(document, partial(body_part, binary), rows)
        binary.check_end()
    layout = layouts(outputs) if header else None
    if layout is not None:
        cache_header(_HEADERS, header, layout)
    return outputs


@contextmanager
def errors_of_server() -> Iterator[None]:
    """Turn errors of a message into those of the model server that sent it."""
    try:
        yield
    except MessageError as error:
        raise MessageError(f"the model server's answer is invalid: {error}", 502) from None


def read_outputs(document: dict[str, Any], read_part: ReadPart, rows: int) -> tuple[Tensor, ...]:
    """Read the outputs of an answer's JSON header, or of a message in that form.

    Raises:
        MessageError: the outputs are invalid.
    """
    outputs = [
        read_tensor(entry, "output", read_part, rows=rows, minimum=0)
        for entry in entries(document, "outputs")
    ]
    if not outputs:
        raise MessageError("it has no outputs; send at least one")
    return tuple(outputs)


def write_response(model: str, request: InferRequest, outputs: Sequence[Tensor]) -> Message:
    """Write the answer to a client: its own id, and each output in the form it requests.

    Raises:
        MessageError: the client requests JSON, which cannot carry a datatype or a value.
    """
    if all_binary(request) and (shapes := _shapes(outputs)) is not None:
        return _cached_form(model, request.id, outputs, shapes)
    forms = {output.name: output.binary for output in request.outputs}
    document: dict[str, Any] = {"model_name": model}
    if request.id is not None:
        document["id"] = request.id
    buffers: list[memoryview] = []
    written, binary = [], False
    for tensor in outputs:
        requested = forms.get(tensor.name)
        in_binary = request.binary_output if requested is None else requested
        binary |= in_binary
        written.append(write_tensor(tensor, buffers, binary=in_binary))
    document["outputs"] = written
    return encode(document, buffers, binary=binary)


def all_binary(request: InferRequest) -> bool:
    """Return true if all outputs of the answer are binary data."""
    default = request.binary_output
    for output in request.outputs:
        if not (default if output.binary is None else output.binary):
            return False
    return default or bool(request.outputs)


def _shapes(outputs: Sequence[Tensor]) -> tuple[Hashable, ...] | None:
    """Return what a header of binary data depends on; None if that is more than the shapes."""
    shapes: list[Hashable] = []
    for tensor in outputs:
        name, datatype, shape, _, parameters, _ = tensor
        if parameters or datatype is BYTES or not tensor.is_binary:
            return None
        shapes += (name, datatype.name, shape)
    return tuple(shapes)


def _cached_form(
    model: str, name: str | None, outputs: Sequence[Tensor], shapes: tuple[Hashable, ...]
) -> Message:
    """Write an answer with the header of an earlier one that had these shapes."""
    key = (model, shapes)
    parts = _WRITTEN.get(key)
    if parts is None:
        written = [write_tensor(tensor, [], binary=True) for tensor in outputs]
        end = to_json({"outputs": written})
        parts = (to_json({"model_name": model})[:-1], b"," + end[1:])
        cache_header(_WRITTEN, key, parts)
    begin, end = parts
    header = begin + end if name is None else b'%b,"id":%b%b' % (begin, to_json(name), end)
    buffers = [part.values for tensor in outputs for part in tensor.parts]
    return Message(header, buffers, len(header))
