"""Requests of clients: ``POST /v2/models/{workflow}/infer``."""

from collections.abc import Hashable, Sequence
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from scheduler.model.message_text import quoted
from scheduler.oip.datatypes import BYTES
from scheduler.oip.errors import MessageError
from scheduler.oip.known_headers import (
    SHORT_LENGTHS,
    TensorLayout,
    cache_header,
    layouts,
    split_id,
    tensors_of,
)
from scheduler.oip.message import decode, entries, read_parameters
from scheduler.oip.tensor import Tensor
from scheduler.oip.tensor_reader import DIMENSION_MAX, ReadPart, body_part, read_tensor
from scheduler.oip.work_limits import TEXTS_MAX, VALUES_MAX


class RequestedOutput(NamedTuple):
    """An output that a client requests.

    Attributes:
        binary: true for binary data, false for JSON; None: the request's default.
        parameters: parameters for the model server.
    """

    name: str
    binary: bool | None
    parameters: dict[str, Any]


class InferRequest(NamedTuple):
    """One request for inference.

    Attributes:
        id: identifier that the client gave the request, or None.
        inputs: one tensor or more; all have the same number of rows.
        outputs: requested outputs; empty: all of them.
        parameters: parameters for the model server.
        binary_output: true for binary data by default in the answer, false for JSON.
        timeout_us: time limit of the client in microseconds, or None.
        joinable: key of requests that can share a batch; None: this one has a batch of its own.
    """

    id: str | None
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...]
    parameters: dict[str, Any]
    binary_output: bool
    timeout_us: int | None
    joinable: Hashable

    @property
    def rows(self) -> int:
        return self.inputs[0].shape[0]

    def at_stage(
        self, inputs: Sequence[Tensor], outputs: Sequence[RequestedOutput]
    ) -> "InferRequest":
        """Return the request for another stage, with its inputs and requested outputs."""
        joinable = _joinable(inputs, outputs, self.parameters)
        return self._replace(inputs=tuple(inputs), outputs=tuple(outputs), joinable=joinable)

    def in_form(self, *, binary: bool) -> "InferRequest":
        """Return the request with its inputs as binary data or as JSON values.

        Call it before the request enters a batch, so that an error concerns this request only.

        Raises:
            MessageError: JSON cannot carry a datatype or a value, or so many of them.
        """
        if binary:
            for tensor in self.inputs:
                if not tensor.is_binary:
                    return self._replace(inputs=tuple(part.to_binary() for part in self.inputs))
            return self
        values = sum([prod(tensor.shape) for tensor in self.inputs if tensor.is_binary])
        if values > VALUES_MAX:
            raise MessageError(
                f"a model server of this request takes tensors as JSON, and {values:,} values are "
                f"more than {VALUES_MAX:,}; send fewer rows, or use a server for binary data",
                413,
            )
        return self._replace(inputs=tuple(tensor.to_json() for tensor in self.inputs))


_HEADERS: Final[dict[bytes, tuple[InferRequest, tuple[TensorLayout, ...]]]] = {}


def parse_request(
    body: bytes | memoryview, header_length: str | None = None, values_max: int = VALUES_MAX
) -> InferRequest:
    """Read a request; its tensors are views of the body.

    Args:
        body: complete body.
        header_length: value of the HTTP header ``Inference-Header-Content-Length``, if there is.
        values_max: values that its JSON may have.

    Raises:
        MessageError: the request is invalid, or exceeds a limit of `scheduler.oip.work_limits`.
    """
    view = memoryview(body)
    key, name = b"", None
    if header_length in SHORT_LENGTHS:
        header = bytes(view[: int(header_length)])
        name, key = split_id(header)
        entry = _HEADERS.get(key)
        if entry is not None:
            request, layout = entry
            inputs = tensors_of(layout, view[len(header) :])
            if inputs is not None:
                cached_id, _, outputs, parameters, binary_output, timeout_us, joinable = request
                return InferRequest(
                    cached_id if name is None else name,
                    inputs,
                    outputs,
                    parameters,
                    binary_output,
                    timeout_us,
                    joinable,
                )
    document, binary = decode(view, header_length, values_max)
    request = read_request(document, partial(body_part, binary))
    binary.check_end()
    tensors = layouts(request.inputs) if key and name in {None, request.id} else None
    if tensors is not None:
        cache_header(_HEADERS, key, (request._replace(inputs=()), tensors))
    return request


def read_request(document: dict[str, Any], read_part: ReadPart) -> InferRequest:
    """Read a request's JSON header, or a message in that form.

    Raises:
        MessageError: the request is invalid.
    """
    name = document.get("id")
    if name is not None and type(name) is not str:
        raise MessageError(f"id is {quoted(name)}; send a text")
    parameters = read_parameters(document, "the request")
    binary_output = _boolean(parameters.pop("binary_data_output", None), "binary_data_output")
    timeout_us = _timeout_us(parameters.pop("timeout", None))
    inputs: list[Tensor] = []
    texts = 0
    for entry in entries(document, "inputs"):
        rows = inputs[0].shape[0] if inputs else None
        tensor = read_tensor(
            entry, "input", read_part, rows=rows, minimum=1, texts_max=TEXTS_MAX - texts
        )
        if tensor.datatype is BYTES:
            texts += prod(tensor.shape)
        inputs.append(tensor)
    if not inputs:
        raise MessageError("the request has no inputs; send at least one tensor")
    outputs = tuple(map(_requested_output, entries(document, "outputs")))
    joinable = _joinable(inputs, outputs, parameters)
    return InferRequest(
        name, tuple(inputs), outputs, parameters, bool(binary_output), timeout_us, joinable
    )


def _requested_output(entry: dict[str, Any]) -> RequestedOutput:
    name = entry["name"]
    parameters = read_parameters(entry, f"output {quoted(name)}")
    binary = _boolean(parameters.pop("binary_data", None), "binary_data")
    return RequestedOutput(name, binary, parameters)


def _boolean(value: Any, name: str) -> bool | None:
    if value is not None and type(value) is not bool:
        raise MessageError(f"parameter {name} is {quoted(value)}; send true or false")
    return value


def _timeout_us(value: Any) -> int | None:
    """Return a positive limit; the protocol's 0 is no limit."""
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= DIMENSION_MAX:
        raise MessageError(f"parameter timeout is {quoted(value)}; send microseconds from 0")
    return value or None


def _joinable(
    inputs: Sequence[Tensor], outputs: Sequence[RequestedOutput], parameters: dict[str, Any]
) -> Hashable:
    return (
        tuple(
            (name, datatype.name, shape[1:], _text(own))
            for name, datatype, shape, _, own, _ in inputs
        ),
        tuple((name, _text(own)) for name, _, own in outputs),
        _text(parameters),
    )


def _text(parameters: dict[str, Any]) -> bytes:
    """Return JSON text, in which 1, 1.0 and true differ."""
    return to_json(parameters) if parameters else b""
