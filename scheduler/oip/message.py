"""Bodies of messages: a JSON header, then binary tensor data without gaps."""

from math import isfinite
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from scheduler.model.message_text import quoted
from scheduler.oip.errors import MessageError
from scheduler.oip.work_limits import PARAMETERS_MAX, TENSORS_MAX

HEADER_LENGTH = "Inference-Header-Content-Length"
"""HTTP header with the length of the JSON header; without it, the whole body is JSON."""

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""Bounds of a parameter: the gRPC form has 64 bits."""


class Message(NamedTuple):
    """A body to send: ``header``, then ``buffers`` in this order.

    Attributes:
        header_length: value of `HEADER_LENGTH`, or None if the whole body is JSON.
    """

    header: bytes
    buffers: list[memoryview]
    header_length: int | None

    @property
    def content_length(self) -> int:
        return len(self.header) + sum(map(len, self.buffers))


def encode(document: dict[str, Any], buffers: list[memoryview], *, binary: bool) -> Message:
    """Write the JSON header of a body whose tensors are complete."""
    header = to_json(document)
    return Message(header, buffers, len(header) if binary else None)


class BinaryData:
    """Binary tensor data of a received body; tensors take their bytes in order."""

    __slots__ = ("_position", "_view", "is_announced")

    def __init__(self, view: memoryview, *, is_announced: bool) -> None:
        self._view = view
        self._position = 0
        self.is_announced = is_announced

    def take(self, size_bytes: int) -> memoryview | None:
        """Return the next bytes as a view, or None if fewer are left."""
        begin, end = self._position, self._position + size_bytes
        if end > len(self._view):
            return None
        self._position = end
        return self._view[begin:end]

    def check_end(self) -> None:
        """Check that the tensors took all bytes."""
        remaining_bytes = len(self._view) - self._position
        if remaining_bytes:
            raise MessageError(
                f"{remaining_bytes:,} bytes of binary data belong to no tensor; "
                "give every binary tensor its binary_data_size"
            )


def decode(
    body: bytes | memoryview, header_length: str | None, values_max: int | None = None
) -> tuple[dict[str, Any], BinaryData]:
    """Split a received body into its JSON header and its binary data.

    Args:
        body: complete body; it must not change while its tensors are in use.
        header_length: value of `HEADER_LENGTH`, or None without that header.
        values_max: numbers, texts, lists and objects in the JSON; None: any number.

    Raises:
        MessageError: the length or the JSON is invalid, or there are too many values.
    """
    view = memoryview(body)
    if header_length is None:
        length, header = len(view), body
    else:
        length = _length(header_length, len(view))
        header = view[:length]
    text = bytes(header)
    # No value is shorter than a byte. Counting takes a hundredth of the time of parsing.
    if values_max is not None and len(text) > values_max:
        values = sum(map(text.count, (b",", b"[", b"{")))
        if values > values_max:
            raise MessageError(
                f"the message has about {values:,} values of JSON, and the limit is "
                f"{values_max:,}; send tensors as binary data",
                413,
            )
    try:
        document = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise MessageError(f"the JSON header is invalid: {error}; send JSON in UTF-8") from None
    if type(document) is not dict:
        raise MessageError(f"the JSON header is {quoted(document)}; send an object")
    return document, BinaryData(view[length:], is_announced=header_length is not None)


def _length(text: str, body_bytes: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(body_bytes))):
        length = -1
    else:
        length = int(text)
    if not 0 <= length <= body_bytes:
        raise MessageError(
            f"{HEADER_LENGTH} is {quoted(text)}; "
            f"send the bytes of the JSON header, at most the body's {body_bytes:,}"
        )
    return length


def entries(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the tensor entries of a header under ``inputs`` or ``outputs``.

    Raises:
        MessageError: they are no list of objects, or too many; a name is missing or not unique.
    """
    values = document.get(key)
    if values is None:
        return []
    if type(values) is not list:
        raise MessageError(f"{key} is {quoted(values)}; send a list of objects")
    _check_number(len(values), TENSORS_MAX, key)
    names = set()
    for index, entry in enumerate(values):
        if type(entry) is not dict:
            raise MessageError(f"{key}[{index}] is {quoted(entry)}; send an object")
        name = entry.get("name")
        if type(name) is not str or not name:
            raise MessageError(f"the name of {key}[{index}] is {quoted(name)}; send a text")
        if name in names:
            raise MessageError(f"{key} has {quoted(name)} twice; give every tensor its own name")
        names.add(name)
    return values


def _check_number(items: int, items_max: int, name: str) -> None:
    if items > items_max:
        raise MessageError(f"{name} has {items:,} items; send {items_max:,} at most", 413)


def read_parameters(document: dict[str, Any], owner: str) -> dict[str, Any]:
    """Return a copy of an object's parameters.

    Raises:
        MessageError: they are no object of texts, finite numbers and booleans.
    """
    parameters = document.get("parameters")
    if parameters is None:
        return {}
    if type(parameters) is not dict:
        raise MessageError(f"parameters of {owner} is {quoted(parameters)}; send an object")
    _check_number(len(parameters), PARAMETERS_MAX, f"parameters of {owner}")
    for name, value in parameters.items():
        kind = type(value)
        if not (kind is str or kind is bool or kind is int or (kind is float and isfinite(value))):
            raise MessageError(
                f"parameter {quoted(name)} of {owner} is {quoted(value)}; "
                "send a text, a finite number or a boolean"
            )
        if kind is int and not INTEGER_MIN <= value <= INTEGER_MAX:
            raise MessageError(
                f"parameter {quoted(name)} of {owner} is {quoted(value)}; "
                f"send integers from {INTEGER_MIN} to {INTEGER_MAX}"
            )
        if name.startswith("shared_memory_"):
            raise MessageError(
                f"{owner} uses shared memory, which the gateway cannot reach; send the data"
            )
    return parameters.copy()
