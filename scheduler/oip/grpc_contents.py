"""Tensors of gRPC messages: raw bytes, or typed contents converted to such bytes."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from scheduler.model.message_text import quoted
from scheduler.oip.datatypes import BYTES, Datatype
from scheduler.oip.errors import MessageError
from scheduler.oip.grpc_messages import RAW, message_error
from scheduler.oip.tensor import TensorPart, with_lengths
from scheduler.oip.tensor_reader import ReadPart, TensorForm, binary_part
from scheduler.oip.work_limits import TYPED_BYTES_MAX
from scheduler.protobuf import (
    CONTINUES,
    I32,
    I64,
    LEN,
    VARINT,
    VARINT_BYTES_MAX,
    FieldBudget,
    ProtobufError,
    read_fields,
    write_varint,
)


class _Contents(NamedTuple):
    """A field of typed contents: its name, and the wire type and numpy type of a value."""

    name: str
    wire_type: int
    dtype: str = ""


_CONTENTS: Final = {
    1: _Contents("bool_contents", VARINT, "?"),
    2: _Contents("int_contents", VARINT, "<i4"),
    3: _Contents("int64_contents", VARINT, "<i8"),
    4: _Contents("uint_contents", VARINT, "<u4"),
    5: _Contents("uint64_contents", VARINT, "<u8"),
    6: _Contents("fp32_contents", I32),
    7: _Contents("fp64_contents", I64),
    8: _Contents("bytes_contents", LEN),
}
_NUMBERS: Final = {
    "BOOL": 1,
    **dict.fromkeys(("INT8", "INT16", "INT32"), 2),
    "INT64": 3,
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), 4),
    "UINT64": 5,
    "FP32": 6,
    "FP64": 7,
    "BYTES": 8,
}
_INTEGERS: Final = frozenset(
    name for name, number in _NUMBERS.items() if _CONTENTS[number].wire_type == VARINT
)


def part_reader(document: dict[str, Any], key: str, budget: FieldBudget | None = None) -> ReadPart:
    """Return a reader of the tensors' data, to be called in their order.

    Args:
        document: message whose tensors are read.
        key: ``inputs`` or ``outputs``.
        budget: limit of the fields of a client's message; None: there is none.

    Raises:
        MessageError: there are raw bytes for some tensors only.
    """
    raw: Sequence[memoryview] = document.get(RAW, ())
    count = len(document.get(key, ()))
    if raw and len(raw) != count:
        raise MessageError(
            f"there are raw contents for {len(raw):,} tensors instead of {count:,}; "
            "send them for all tensors or for none"
        )
    views = iter(raw)
    typed_bytes = 0

    def read_part(entry: dict[str, Any], _: dict[str, Any], form: TensorForm) -> TensorPart:
        nonlocal typed_bytes
        contents = entry.get("contents", ())
        if not raw:
            if budget is not None and form.datatype.name in _INTEGERS:
                typed_bytes += sum(map(len, contents))
                if typed_bytes > TYPED_BYTES_MAX:
                    raise MessageError(
                        f"typed contents of integers have more than {TYPED_BYTES_MAX:,} bytes; "
                        "send raw contents",
                        413,
                    )
            try:
                typed = _typed(contents, form.datatype, form.owner, budget)
            except ProtobufError as error:
                raise message_error(error) from None
            return binary_part(typed, form)
        if any(contents):
            raise MessageError(f"{form.owner} has both raw and typed contents; send one of them")
        return binary_part(next(views), form)

    return read_part


def _typed(
    contents: Sequence[memoryview], datatype: Datatype, owner: str, budget: FieldBudget | None
) -> memoryview:
    """Return typed contents as bytes in the form of raw contents."""
    number = _NUMBERS.get(datatype.name)
    if number is None:
        raise MessageError(f"{owner} has {datatype.name}; send it as raw contents")
    name, wire_type, dtype = _CONTENTS[number]
    values: list[memoryview] = []
    for view in contents:
        for own_number, own_type, value in read_fields(view, budget):
            if own_number == number and own_type in {wire_type, LEN}:
                values.append(memoryview(write_varint(value)) if own_type == VARINT else value)
            elif own_number in _CONTENTS:
                raise MessageError(
                    f"{owner} is {datatype.name} and has {_CONTENTS[own_number].name} "
                    f"of wire type {own_type}; send {name}"
                )
    if datatype is BYTES:
        return with_lengths(values)
    joined = values[0] if len(values) == 1 else memoryview(b"".join(values))
    if wire_type != VARINT:
        return joined
    return _integers(_varints(joined, owner), dtype, datatype, owner)


def _varints(view: memoryview, owner: str) -> np.ndarray[Any, np.dtype[np.uint64]]:
    octets = np.frombuffer(view, np.uint8)
    ends = np.flatnonzero(octets < CONTINUES)
    sizes = np.diff(ends, prepend=-1)
    size_max = sizes.max(initial=0)
    if size_max > VARINT_BYTES_MAX or sizes.sum() != len(octets):
        raise MessageError(f"an integer of {owner} has no end; send a complete message")
    begins = ends - sizes + 1
    values = np.zeros(len(ends), np.uint64)
    for index in range(size_max):
        has_byte = sizes > index
        bits = octets[begins[has_byte] + index].astype(np.uint64) & np.uint64(CONTINUES - 1)
        values[has_byte] |= bits << np.uint64(7 * index)
    return values


def _integers(
    values: np.ndarray[Any, np.dtype[np.uint64]], dtype: str, datatype: Datatype, owner: str
) -> memoryview:
    """Return integers in the size of the datatype."""
    if datatype.bounds is None:
        return memoryview(values.astype(np.bool_).tobytes())
    sized = values.astype(f"<u{np.dtype(dtype).itemsize}").view(dtype)
    low, high = datatype.bounds
    for value in (sized.min(initial=0), sized.max(initial=0)):
        if not low <= value <= high:
            raise MessageError(
                f"{owner} has {quoted(int(value))}; "
                f"{datatype.name} takes numbers from {low} to {high}"
            )
    code = f"<{'i' if low else 'u'}{datatype.size_bytes}"
    return memoryview(sized.astype(code).tobytes())
