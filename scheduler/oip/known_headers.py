"""Tensors of messages whose JSON header came before: only the views of their data are new.

A client sends the same header with each request of one shape, but for the request's id, and a model
server with each answer; reading it again takes most of the time of a short message.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

from scheduler.oip.datatypes import BYTES, Datatype
from scheduler.oip.tensor import Tensor, TensorPart

_ID = re.compile(rb'\{"id": ?"([ !#-\[\]-~]*)(?=")')  # of printable ASCII without escapes
HEADERS_MAX = 1024
"""Headers known at a time."""
HEADER_BYTES_MAX = 4095
"""Longer headers are not remembered."""
SHORT_LENGTHS: Final = frozenset(map(str, range(1, HEADER_BYTES_MAX + 1)))
"""Lengths of headers that are remembered, as text."""
_Key = TypeVar("_Key")
_Known = TypeVar("_Known")


class TensorLayout(NamedTuple):
    """A tensor of binary data, without the data."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parameters: dict[str, Any]
    row_bytes: int
    size_bytes: int


def remember(headers: dict[_Key, _Known], key: _Key, known: _Known) -> None:
    """Add a header; forget all if there are too many."""
    if len(headers) >= HEADERS_MAX:
        headers.clear()
    headers[key] = known


def layouts(tensors: Sequence[Tensor]) -> tuple[TensorLayout, ...] | None:
    """Return the layouts of tensors; None if one is not fully described by the header."""
    if any(not tensor.is_binary or tensor.datatype is BYTES for tensor in tensors):
        return None
    return tuple(
        TensorLayout(name, datatype, shape, parameters, parts[0].row_size, len(parts[0].values))
        for name, datatype, shape, parts, parameters, _ in tensors
    )


def tensors_of(known: Sequence[TensorLayout], data: memoryview) -> tuple[Tensor, ...] | None:
    """Return tensors of the data; None if it has another size."""
    tensors, begin = [], 0
    for name, datatype, shape, parameters, row_bytes, size_bytes in known:
        end = begin + size_bytes
        part = TensorPart(shape[0], data[begin:end], row_bytes)
        tensors.append(Tensor(name, datatype, shape, (part,), parameters))
        begin = end
    return tuple(tensors) if begin == len(data) else None


def split_id(header: bytes) -> tuple[str | None, bytes]:
    """Return the id at the beginning of a header, and the rest; None and the header without one."""
    match = _ID.match(header)
    if match is None:
        return None, header
    rest = header[match.end() :]
    return (None, header) if b'"id"' in rest else (match[1].decode(), rest)
