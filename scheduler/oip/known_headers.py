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
"""Headers cached at a time."""
HEADER_BYTES_MAX = 4095
"""Longer headers are not cached."""
SHORT_LENGTHS: Final = frozenset(map(str, range(1, HEADER_BYTES_MAX + 1)))
"""Lengths of headers that are cached, as text."""
_Key = TypeVar("_Key")
_Entry = TypeVar("_Entry")


class TensorLayout(NamedTuple):
    """A tensor of binary data, without the data."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parameters: dict[str, Any]
    row_bytes: int
    size_bytes: int


def cache_header(headers: dict[_Key, _Entry], key: _Key, entry: _Entry) -> None:
    """Add a header; discard all if there are too many."""
    if len(headers) >= HEADERS_MAX:
        headers.clear()
    headers[key] = entry


def layouts(tensors: Sequence[Tensor]) -> tuple[TensorLayout, ...] | None:
    """Return the layouts of tensors; None if one is not fully described by the header."""
    if any(not tensor.is_binary or tensor.datatype is BYTES for tensor in tensors):
        return None
    return tuple(
        TensorLayout(name, datatype, shape, parameters, parts[0].row_size, len(parts[0].values))
        for name, datatype, shape, parts, parameters, _ in tensors
    )


def tensors_of(
    tensor_layouts: Sequence[TensorLayout], data: memoryview
) -> tuple[Tensor, ...] | None:
    """Return tensors of the data; None if it has another size."""
    tensors, begin = [], 0
    for name, datatype, shape, parameters, row_bytes, size_bytes in tensor_layouts:
        end = begin + size_bytes
        part = TensorPart(shape[0], data[begin:end], row_bytes)
        tensors.append(Tensor(name, datatype, shape, (part,), parameters))
        begin = end
    return tuple(tensors) if begin == len(data) else None


def split_id(header: bytes) -> tuple[str | None, bytes]:
    """Split a header behind the id at its beginning; None and the whole header if there is none."""
    match = _ID.match(header)
    if match is None:
        return None, header
    remaining = header[match.end() :]
    return (None, header) if b'"id"' in remaining else (match[1].decode(), remaining)
