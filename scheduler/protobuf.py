"""Protobuf's wire format: messages as dictionaries, fields of bytes as views.

The gRPC form of the protocol has a dozen small messages around large fields of bytes. The package
``protobuf`` copies such a field twice on its way into Python, so a table of the messages stands
here instead (ADR 23). Work is linear in the size of a message, and nesting ends with the table.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

VARINT, I64, LEN, I32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {I64: 8, I32: 4}
_FIELD_NUMBER_MAX: Final = 2**29 - 1
_VARINT_BITS: Final = 64
VARINT_BYTES_MAX: Final = 10
CONTINUES: Final = 0x80
"""Bit of each byte of an integer but the last."""
_VARINT_MASK: Final = (1 << _VARINT_BITS) - 1
_DOUBLE: Final = struct.Struct("<d")


class ProtobufError(ValueError):
    """Bytes that are no message of their schema; the text says what to send.

    Attributes:
        is_too_long: true if the message has more fields than its reader allows.
    """

    def __init__(self, message: str, *, is_too_long: bool = False) -> None:
        super().__init__(message)
        self.is_too_long = is_too_long


class FieldBudget:
    """Fields that may still be read of a message: each takes as long as a kilobyte of bytes.

    Args:
        fields_max: fields of the whole message, and its integers that are packed.
    """

    def __init__(self, fields_max: int) -> None:
        self._fields_max = fields_max
        self._unread_fields = fields_max

    def spend(self) -> None:
        """Count a field; raises `ProtobufError`."""
        self._unread_fields -= 1
        if self._unread_fields < 0:
            raise ProtobufError(
                f"the message has more than {self._fields_max:,} fields; send fewer, and tensors "
                "as raw contents",
                is_too_long=True,
            )


class Kind(NamedTuple):
    """A type of values.

    Attributes:
        wire_type: wire type of one value.
        read: function from an integer (VARINT) or a view (all others) to the value.
        write: function from the value to an integer (VARINT) or bytes (all others).
    """

    wire_type: int
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        name: key in the dictionary.
        kind: type of the values; the fields of a message within the message.
        is_repeated: true if the dictionary has a list of values.
    """

    name: str
    kind: "Kind | Mapping[int, Field]"
    is_repeated: bool = False


Schema = Mapping[int, Field]


def _signed(value: int) -> int:
    return value - (1 << _VARINT_BITS) if value >> _VARINT_BITS - 1 else value


def _text(view: memoryview) -> str:
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtobufError(f"a text is not UTF-8: {error.reason}; send texts in UTF-8") from None


BOOL: Final = Kind(VARINT, bool, int)
INT64: Final = Kind(VARINT, _signed, lambda value: value & _VARINT_MASK)
UINT64: Final = Kind(VARINT, int, int)
DOUBLE: Final = Kind(I64, lambda view: _DOUBLE.unpack(view)[0], _DOUBLE.pack)
TEXT: Final = Kind(LEN, _text, str.encode)
BYTES: Final = Kind(LEN, memoryview, bytes)


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return the integer at a position, and the position behind it."""
    value = shift = 0
    while position < len(view) and shift < _VARINT_BITS:
        byte = view[position]
        position += 1
        value |= (byte & ~CONTINUES) << shift
        if byte < CONTINUES:
            return value & _VARINT_MASK, position
        shift += 7
    raise ProtobufError("an integer in the message has no end; send a complete message")


def write_varint(value: int) -> bytes:
    """Return the bytes of an integer from 0 to 2**64 - 1."""
    if value < CONTINUES:
        return bytes((value,))
    encoded = bytearray()
    while value >= CONTINUES:
        encoded.append(value & 0xFF | CONTINUES)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_fields(
    view: memoryview, budget: FieldBudget | None = None
) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field: an integer (VARINT) or a view.

    Raises:
        ProtobufError: the bytes are no message, or the budget is spent.
    """
    position, end = 0, len(view)
    while position < end:
        if budget is not None:
            budget.spend()
        key, position = read_varint(view, position)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= _FIELD_NUMBER_MAX:
            raise ProtobufError(f"a field has number {number}; send a message of the protocol")
        if wire_type == VARINT:
            value, position = read_varint(view, position)
            yield number, wire_type, value
            continue
        if wire_type == LEN:
            size, position = read_varint(view, position)
        elif wire_type in _FIXED_BYTES:
            size = _FIXED_BYTES[wire_type]
        else:
            raise ProtobufError(
                f"field {number} has wire type {wire_type}; send a message of the protocol"
            )
        begin, position = position, position + size
        if position > end:
            raise ProtobufError(
                f"field {number} has {size:,} bytes, more than the {end - begin:,} after it; "
                "send a complete message"
            )
        yield number, wire_type, view[begin:position]


def decode(
    schema: Schema,
    view: memoryview,
    document: dict[str, Any] | None = None,
    budget: FieldBudget | None = None,
) -> dict[str, Any]:
    """Return the fields of a message in their order; absent and unknown ones are left out.

    Args:
        schema: known fields.
        view: encoded message; it must not change while its views are in use.
        document: fields of an earlier occurrence of the message, which this one continues; None:
            there is none.
        budget: number of fields that may be read; None: any number.

    Raises:
        ProtobufError: the bytes are no message of this schema, or the budget is spent.
    """
    document = {} if document is None else document
    for number, wire_type, content in read_fields(view, budget):
        field = schema.get(number)
        if field is None:
            continue
        name, kind, is_repeated = field
        expected_type = kind.wire_type if isinstance(kind, Kind) else LEN
        if wire_type == expected_type:
            if isinstance(kind, Kind):
                value = kind.read(content)
            else:
                earlier = None if is_repeated else document.get(name)
                value = decode(kind, content, earlier, budget)
            if is_repeated:
                document.setdefault(name, []).append(value)
            else:
                document.pop(name, None)  # the last field of a union is the last in the dictionary
                document[name] = value
        elif wire_type == LEN and is_repeated and isinstance(kind, Kind):
            document.setdefault(name, []).extend(map(kind.read, _varints(content, budget)))
        else:
            raise ProtobufError(
                f"field {name} has wire type {wire_type} instead of {expected_type}; "
                "send a message of the protocol"
            )
    return document


def _varints(view: memoryview, budget: FieldBudget | None) -> Iterator[int]:
    position = 0
    while position < len(view):
        if budget is not None:
            budget.spend()
        value, position = read_varint(view, position)
        yield value


def encode(schema: Schema, document: Mapping[str, Any]) -> bytes:
    """Write a message; fields that the dictionary lacks are left out."""
    buffers: list[bytes] = []
    for number, (name, kind, is_repeated) in schema.items():
        value = document.get(name)
        if value is None:
            continue
        values = value if is_repeated else (value,)
        if not isinstance(kind, Kind):
            contents = [encode(kind, item) for item in values]
        elif kind.wire_type == LEN:
            contents = [kind.write(item) for item in values]
        else:
            numbers = [_number(kind, item) for item in values]
            if not is_repeated:
                buffers += (write_varint(number << 3 | kind.wire_type), *numbers)
                continue
            contents = [b"".join(numbers)]
        for content in contents:
            buffers += (length_prefix(number, len(content)), content)
    return b"".join(buffers)


def _number(kind: Kind, value: Any) -> bytes:
    written = kind.write(value)
    return write_varint(written) if kind.wire_type == VARINT else written


def length_prefix(number: int, size_bytes: int) -> bytes:
    """Return what precedes the bytes of a field."""
    return write_varint(number << 3 | LEN) + write_varint(size_bytes)
