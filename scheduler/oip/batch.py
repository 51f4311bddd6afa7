"""Batches: rows of several requests in one message to a model server, and back."""

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from scheduler.model.message_text import listed, quoted
from scheduler.oip.datatypes import BYTES
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.known_headers import HEADER_BYTES_MAX, cache_header
from scheduler.oip.message import Message, encode
from scheduler.oip.tensor import Tensor, concatenate
from scheduler.oip.tensor_writer import write_tensor

_JOINED: Final[dict[Hashable, bytes]] = {}
"""Headers of binary data by what they depend on: joinable requests, rows, time."""


class RowRange(NamedTuple):
    """Rows of a request, from ``first`` up to but without ``last``."""

    request: InferRequest
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first

    @property
    def joinable(self) -> Hashable:
        return self.request.joinable


def row_ranges(request: InferRequest, rows_max: int) -> list[RowRange]:
    """Cut a request into ranges of at most ``rows_max`` rows, the size of the largest batch."""
    rows = request.rows
    if rows <= rows_max:
        return [RowRange(request, 0, rows)]
    return [
        RowRange(request, first, min(first + rows_max, rows)) for first in range(0, rows, rows_max)
    ]


def join(ranges: Sequence[RowRange], *, binary: bool, timeout_us: int | None = None) -> Message:
    """Write one request to a model server for ranges of joinable requests.

    Args:
        ranges: one range or more; their requests have passed `InferRequest.in_form`.
        binary: true for inputs and outputs as binary data, false for JSON.
        timeout_us: time that the model server has, in microseconds; None: no limit.
    """
    request = ranges[0].request
    key: Hashable = None
    is_known_size = not any(tensor.datatype is BYTES for tensor in request.inputs)
    if binary and is_known_size and request.joinable is not None:
        key = (request.joinable, sum(last - first for _, first, last in ranges), timeout_us)
        header = _JOINED.get(key)
        if header is not None:
            return Message(header, _contents(ranges), len(header))
    parameters = server_parameters(request, timeout_us)
    if binary and not request.outputs:
        parameters = {**parameters, "binary_data_output": True}
    document: dict[str, Any] = {"parameters": parameters} if parameters else {}
    buffers: list[memoryview] = []
    document["inputs"] = [
        write_tensor(tensor, buffers, binary=binary) for tensor in joined_inputs(ranges)
    ]
    if request.outputs:
        form = {"binary_data": True} if binary else {}
        document["outputs"] = [
            {"name": name, "parameters": {**own, **form}} for name, _, own in request.outputs
        ]
    message = encode(document, buffers, binary=binary)
    if key is not None and len(message.header) <= HEADER_BYTES_MAX:
        cache_header(_JOINED, key, message.header)
    return message


def _contents(ranges: Sequence[RowRange]) -> list[memoryview]:
    """Return the data of binary inputs, in the order of `joined_inputs`."""
    return [
        part.values
        for index in range(len(ranges[0].request.inputs))
        for request, first, last in ranges
        for part in request.inputs[index].slice(first, last).parts
    ]


def joined_inputs(ranges: Sequence[RowRange]) -> list[Tensor]:
    """Return the inputs of joinable requests with the rows of all ranges."""
    rows = [
        [tensor.slice(first, last) for tensor in request.inputs] for request, first, last in ranges
    ]
    return list(map(concatenate, zip(*rows, strict=True)))


def server_parameters(request: InferRequest, timeout_us: int | None) -> dict[str, Any]:
    """Return the parameters of a batch with the time that the model server has."""
    if timeout_us is None:
        return request.parameters
    return {**request.parameters, "timeout": timeout_us}


def split(ranges: Sequence[RowRange], outputs: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Return the outputs of each range, in the order of its request.

    Args:
        ranges: joined ranges, in their order.
        outputs: tensors with one row for each row of the batch.

    Raises:
        MessageError: a requested output is missing.
    """
    names = [output.name for output in ranges[0].request.outputs]
    if names:
        outputs = select(outputs, names, "the model server's answer")
    answers, begin = [], 0
    for _, first, last in ranges:
        end = begin + last - first
        answers.append(tuple([output.slice(begin, end) for output in outputs]))
        begin = end
    return answers


def select(outputs: Sequence[Tensor], names: Sequence[str], owner: str) -> list[Tensor]:
    """Return tensors by name; ``owner`` names their origin in the message.

    Raises:
        MessageError: one is missing.
    """
    by_name = {output.name: output for output in outputs}
    for name in names:
        if name not in by_name:
            output_names = listed([quoted(output_name) for output_name in by_name])
            raise MessageError(f"{owner} lacks output {quoted(name)}; it has {output_names}", 502)
    return [by_name[name] for name in names]


def reunite(answers: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """Join the outputs of a request's row ranges, in the order of its rows.

    Raises:
        MessageError: the outputs of two ranges differ in name, datatype or shape.
    """
    first = answers[0]
    for answer in answers[1:]:
        if _signature(answer) != _signature(first):
            raise MessageError(
                "model servers answered parts of one request with different outputs: "
                f"{_described(first)}, and {_described(answer)}; let all of them serve one model",
                502,
            )
    return tuple(map(concatenate, zip(*answers, strict=True)))


def _signature(outputs: Sequence[Tensor]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(output.name, output.datatype.name, output.shape[1:]) for output in outputs]


def _described(outputs: Sequence[Tensor]) -> str:
    return listed([f"{quoted(name)} {kind} {shape}" for name, kind, shape in _signature(outputs)])
