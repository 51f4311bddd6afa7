"""Validation of the tensors in a received message, with work linear in the body."""

from collections.abc import Callable
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from scheduler.model.message_text import quoted
from scheduler.oip.datatypes import BYTES, DATATYPES, Datatype
from scheduler.oip.errors import MessageError
from scheduler.oip.message import HEADER_LENGTH, BinaryData, read_parameters
from scheduler.oip.tensor import Tensor, TensorPart, row_starts
from scheduler.oip.work_limits import TEXTS_MAX

RANK_MAX = 64
"""Longest shape; it bounds the size of the product of all dimensions."""
DIMENSION_MAX = 2**63 - 1
_DATA_SIZE = "binary_data_size"


class TensorForm(NamedTuple):
    """Datatype and shape of a tensor; ``owner`` names it in messages."""

    datatype: Datatype
    shape: tuple[int, ...]
    owner: str


ReadPart = Callable[[dict[str, Any], dict[str, Any], TensorForm], TensorPart]
"""Reads a tensor's data from its entry; may remove what concerns it from the parameters."""


def read_tensor(  # noqa: PLR0913 - each by its name
    entry: dict[str, Any],
    kind: str,
    read_part: ReadPart,
    *,
    rows: int | None,
    minimum: int,
    texts_max: int | None = None,
) -> Tensor:
    """Read one entry of ``inputs`` or ``outputs``, whose name is valid.

    Args:
        entry: JSON object of the tensor, or a message in that form.
        kind: ``input`` or ``output``, for error messages.
        read_part: function that reads the data of this tensor, which follow those of the one
            before.
        rows: expected first dimension, or None for any.
        minimum: smallest allowed dimension.
        texts_max: number of elements that a tensor of datatype BYTES may have; None: any number.

    Raises:
        MessageError: shape, datatype and data do not match.
    """
    name = entry["name"]
    owner = f"{kind} {quoted(name)}"
    datatype = _datatype(entry.get("datatype"), owner)
    shape = _shape(entry.get("shape"), owner, minimum)
    if rows is not None and shape[0] != rows:
        raise MessageError(
            f"{owner} has {shape[0]:,} rows instead of {rows:,}; "
            "the first dimension of all tensors must be the number of rows"
        )
    if texts_max is not None and datatype is BYTES and prod(shape) > texts_max:
        raise MessageError(
            f"with {owner} the request has more than {TEXTS_MAX:,} BYTES elements; send fewer rows",
            413,
        )
    parameters = read_parameters(entry, owner)
    part = read_part(entry, parameters, TensorForm(datatype, shape, owner))
    return Tensor(name, datatype, shape, (part,), parameters)


def _datatype(name: Any, owner: str) -> Datatype:
    datatype = DATATYPES.get(name) if type(name) is str else None
    if datatype is None:
        names = ", ".join(DATATYPES)
        raise MessageError(f"the datatype of {owner} is {quoted(name)}; use one of {names}")
    return datatype


def _shape(shape: Any, owner: str, minimum: int) -> tuple[int, ...]:
    if type(shape) is not list or not 1 <= len(shape) <= RANK_MAX:
        value = f"{len(shape)} dimensions" if type(shape) is list else quoted(shape)
        raise MessageError(
            f"the shape of {owner} is {value}; send a list of 1 to {RANK_MAX} dimensions, "
            "the first of which counts the rows"
        )
    for dimension in shape:
        if type(dimension) is not int or not minimum <= dimension <= DIMENSION_MAX:
            raise MessageError(
                f"a dimension of {owner} is {quoted(dimension)}; "
                f"use integers from {minimum} to {DIMENSION_MAX}"
            )
    return tuple(shape)


def body_part(
    binary: BinaryData, entry: dict[str, Any], parameters: dict[str, Any], form: TensorForm
) -> TensorPart:
    """Read the data of a tensor over HTTP: JSON values, or the next bytes of ``binary``.

    Raises:
        MessageError: they are missing, or do not match the shape.
    """
    size_bytes = parameters.pop(_DATA_SIZE, None)
    if "data" not in entry:
        return binary_part(_next_bytes(size_bytes, binary, form.owner), form)
    if size_bytes is not None:
        raise MessageError(f"{form.owner} has both data and {_DATA_SIZE}; send one of them")
    return _json_part(entry["data"], form)


def _next_bytes(size_bytes: Any, binary: BinaryData, owner: str) -> memoryview:
    if size_bytes is None:
        raise MessageError(f"{owner} has no data; send data, or binary data and {_DATA_SIZE}")
    if type(size_bytes) is not int or size_bytes < 0:
        raise MessageError(
            f"{_DATA_SIZE} of {owner} is {quoted(size_bytes)}; send its number of bytes"
        )
    if not binary.is_announced:
        raise MessageError(f"{owner} has {_DATA_SIZE}; send the header {HEADER_LENGTH}, too")
    view = binary.take(size_bytes)
    if view is None:
        raise MessageError(
            f"{_DATA_SIZE} of {owner} is {quoted(size_bytes)}, more than the rest of the body; "
            "send all bytes of all tensors after the JSON header"
        )
    return view


def binary_part(view: memoryview, form: TensorForm) -> TensorPart:
    """Return the rows of a tensor's bytes.

    Raises:
        MessageError: they do not match the shape.
    """
    datatype, shape, owner = form
    size_bytes = len(view)
    rows, per_row = shape[0], prod(shape[1:])
    if datatype is BYTES:
        starts = row_starts(view, rows, per_row)
        if starts is None:
            raise MessageError(
                f"the {size_bytes:,} bytes of {owner} are not {quoted(rows * per_row)} elements; "
                "send a 4-byte little-endian length before each of them"
            )
        return TensorPart(rows, view, 0, starts)
    row_bytes = per_row * datatype.size_bytes
    if rows * row_bytes != size_bytes:
        raise MessageError(
            f"{owner} has {size_bytes:,} bytes; "
            f"its shape as {datatype.name} needs {quoted(rows * row_bytes)}"
        )
    return TensorPart(rows, view, row_bytes)


def _json_part(data: Any, form: TensorForm) -> TensorPart:
    datatype, shape, owner = form
    if not datatype.json_types:
        raise MessageError(
            f"{owner} has {datatype.name} as JSON, which has no such numbers; send binary data"
        )
    values = _flat(data, shape, owner)
    if not datatype.json_types.issuperset(map(type, values)):
        index = next(i for i, v in enumerate(values) if type(v) not in datatype.json_types)
        raise MessageError(
            f"element {index:,} of {owner} is {quoted(values[index])}; "
            f"send JSON values of {datatype.name}"
        )
    if datatype.bounds and values:
        low, high = datatype.bounds
        for value in (min(values), max(values)):
            if not low <= value <= high:
                raise MessageError(
                    f"{owner} has {quoted(value)}; "
                    f"{datatype.name} takes numbers from {low} to {high}"
                )
    return TensorPart(shape[0], values, prod(shape[1:]))


def _flat(data: Any, shape: tuple[int, ...], owner: str) -> list[Any]:
    """Return row-major values of data that is flat or nested like its shape."""
    if type(data) is not list:
        raise MessageError(f"data of {owner} is {quoted(data)}; send a list")
    if not data or type(data[0]) is not list:
        if len(data) != prod(shape):
            raise MessageError(
                f"{owner} has {len(data):,} values; its shape needs {quoted(prod(shape))}"
            )
        return data
    level = [data]
    for axis, dimension in enumerate(shape):
        if {list}.issuperset(map(type, level)) and {dimension}.issuperset(map(len, level)):
            level = list(chain.from_iterable(level))
        else:
            raise MessageError(
                f"data of {owner} is not nested like its shape: dimension {axis} is not "
                f"{dimension:,} everywhere; send lists of that length, or one flat list"
            )
    return level
