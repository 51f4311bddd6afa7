"""Tensors as runs of rows: views of the bodies they came in, or flat lists of JSON values.

A row is one index of the first dimension. Slicing and concatenation copy no tensor bytes.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from math import isfinite, prod
from typing import Any, NamedTuple

from scheduler.model.message_text import quoted
from scheduler.oip.datatypes import BYTES, Datatype
from scheduler.oip.errors import MessageError

_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size
"""Bytes of the length in front of each element of a binary BYTES tensor."""


class TensorPart(NamedTuple):
    """Consecutive rows of a tensor in one buffer or list.

    Attributes:
        rows: number of rows.
        values: memoryview of row-major bytes, or a list of JSON values.
        row_size: bytes or JSON values per row; unused with ``starts``.
        starts: byte offset of each row and of the end, in a binary BYTES tensor only.
    """

    rows: int
    values: Any
    row_size: int
    starts: list[int] | None = None

    @property
    def is_binary(self) -> bool:
        return type(self.values) is not list

    @property
    def content(self) -> Any:
        """Values of these rows only."""
        if self.starts is None:
            return self.values
        return self.values[self.starts[0] : self.starts[-1]]

    def slice(self, first: int, last: int) -> "TensorPart":
        """Return the rows from ``first`` up to but without ``last``."""
        _, values, row_size, starts = self
        if starts is None:
            return TensorPart(last - first, values[first * row_size : last * row_size], row_size)
        return TensorPart(last - first, values, 0, starts[first : last + 1])


class Tensor(NamedTuple):
    """A named tensor; its parts have ``shape[0]`` rows together.

    Attributes:
        name: name in the message.
        shape: sizes of all dimensions, rows first.
        parts: rows of the tensor, in order.
        parameters: parameters for the model server.
        begins: index of the first row of each part.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parts: tuple[TensorPart, ...]
    parameters: dict[str, Any]
    begins: tuple[int, ...] = (0,)

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def is_binary(self) -> bool:
        for part in self.parts:  # noqa: SIM110 - a generator takes longer than the loop
            if type(part.values) is list:
                return False
        return True

    def slice(self, first: int, last: int) -> "Tensor":
        """Return the rows from ``first`` up to but without ``last``."""
        name, datatype, shape, parts, parameters, begins = self
        if last - first == shape[0]:
            return self
        sliced_shape = (last - first, *shape[1:])
        if len(parts) == 1:
            return Tensor(name, datatype, sliced_shape, (parts[0].slice(first, last),), parameters)
        low, high = bisect_right(begins, first) - 1, bisect_left(begins, last)
        sliced = tuple(
            part.slice(max(first - begin, 0), min(last - begin, part.rows))
            for begin, part in zip(begins[low:high], parts[low:high], strict=True)
        )
        return Tensor(name, datatype, sliced_shape, sliced, parameters, _begins(sliced))

    def to_binary(self) -> "Tensor":
        """Return the tensor with all parts as bytes."""
        if self.is_binary:
            return self
        return self._replace(parts=tuple(_binary(self, part) for part in self.parts))

    def to_json(self) -> "Tensor":
        """Return the tensor with all parts as JSON values.

        Raises:
            MessageError: JSON cannot carry the datatype or a value.
        """
        if not any(part.is_binary for part in self.parts):
            return self
        return self._replace(parts=tuple(_json(self, part) for part in self.parts))


def concatenate(tensors: Sequence[Tensor]) -> Tensor:
    """Join the rows of tensors that differ in their rows only."""
    first = tensors[0]
    if len(tensors) == 1:
        return first
    parts = tuple(chain.from_iterable(tensor.parts for tensor in tensors))
    shape = (sum(part.rows for part in parts), *first.shape[1:])
    return Tensor(first.name, first.datatype, shape, parts, first.parameters, _begins(parts))


def row_starts(elements: memoryview, rows: int, elements_per_row: int) -> list[int] | None:
    """Return the offset of each row of a binary BYTES tensor and of its end.

    Returns None if the lengths in front of the elements do not add up to the buffer.
    """
    size = len(elements)
    if rows * elements_per_row * LENGTH_BYTES > size:
        return None
    unpack = _LENGTH.unpack_from
    position, starts = 0, [0]
    for _ in range(rows):
        for _ in range(elements_per_row):
            if position + LENGTH_BYTES > size:
                return None
            position += LENGTH_BYTES + unpack(elements, position)[0]
        starts.append(position)
    return starts if position == size else None


def with_lengths(elements: Iterable[bytes | memoryview]) -> memoryview:
    """Return the elements of a binary BYTES tensor with their lengths in front of them."""
    pairs = ((_LENGTH.pack(len(element)), element) for element in elements)
    return memoryview(b"".join(chain.from_iterable(pairs)))


def _begins(parts: Sequence[TensorPart]) -> tuple[int, ...]:
    return tuple(accumulate((part.rows for part in parts[:-1]), initial=0))


def _binary(tensor: Tensor, part: TensorPart) -> TensorPart:
    if part.is_binary:
        return part
    values, per_row = part.values, part.row_size
    if tensor.datatype is BYTES:
        encoded = [value.encode() for value in values]
        buffer = with_lengths(encoded)
        ends = list(accumulate((LENGTH_BYTES + len(element) for element in encoded), initial=0))
        starts = ends[::per_row] if per_row else [0] * (part.rows + 1)
        return TensorPart(part.rows, buffer, 0, starts)
    buffer = memoryview(struct.pack(f"<{len(values)}{tensor.datatype.code}", *values))
    return TensorPart(part.rows, buffer, per_row * tensor.datatype.size_bytes)


def _json(tensor: Tensor, part: TensorPart) -> TensorPart:
    if not part.is_binary:
        return part
    datatype, content = tensor.datatype, part.content
    per_row = prod(tensor.shape[1:])
    if datatype is BYTES:
        try:
            return TensorPart(part.rows, _texts(content), per_row)
        except UnicodeDecodeError:
            raise _not_json(tensor, "an element is not UTF-8") from None
    if not datatype.code:
        raise _not_json(tensor, f"JSON has no {datatype.name}")
    values = list(struct.unpack(f"<{part.rows * per_row}{datatype.code}", content))
    if datatype.is_float and not all(map(isfinite, values)):
        raise _not_json(tensor, "JSON has no NaN and no infinity")
    return TensorPart(part.rows, values, per_row)


def _texts(elements: memoryview) -> list[str]:
    position, values = 0, []
    while position < len(elements):
        begin = position + LENGTH_BYTES
        position = begin + _LENGTH.unpack_from(elements, position)[0]
        values.append(str(elements[begin:position], "utf-8"))
    return values


def _not_json(tensor: Tensor, reason: str) -> MessageError:
    return MessageError(
        f"tensor {quoted(tensor.name)} cannot be sent as JSON: {reason}; use binary tensor data"
    )
