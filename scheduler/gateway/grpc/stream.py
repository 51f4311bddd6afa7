"""One call of a connection: its message as it comes, and its answer as it goes."""

import asyncio
import struct
from collections.abc import Callable, Mapping
from math import inf
from typing import Final, NamedTuple

import numpy as np

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.calls import CallError
from scheduler.oip.errors import MessageError

_PREFIX: Final = struct.Struct(">BI")
_UNITS_MS: Final = {b"H": 3.6e6, b"M": 6e4, b"S": 1e3, b"m": 1.0, b"u": 1e-3, b"n": 1e-6}
_DIGITS_MAX: Final = 8
_SHORT_BYTES_MAX: Final = 4096  # of a message of a call of several, which asks by a name

Responder = Callable[[memoryview], bytes]
"""Returns the answer to one message of a call of several; raises `MessageError`."""


class GrpcRequest(NamedTuple):
    """Head of a call.

    Attributes:
        path: names of service and method.
        metadata: first value of each name in lower case.
        source: IP address of the client, or of the last proxy.
        arrival_ms: arrival of the head, by the application's clock.
        timeout_ms: limit of the client, counted from the arrival, or None.
    """

    path: bytes
    metadata: Mapping[bytes, bytes]
    source: str
    arrival_ms: float
    timeout_ms: float | None


class GrpcAnswer(NamedTuple):
    """Message of an answer, and its trailing metadata."""

    message: bytes
    metadata: tuple[tuple[str, str], ...] = ()


class GrpcStream:
    """A call between its head and the end of its answer.

    Attributes:
        number: identifier of the call in its connection.
        request: head of the call.
        deadline_s: time of the loop's clock at which the client is too slow.
        is_refused: true if the rest of the message is discarded.
        review: task that ends when it is known that the client may call, or with a `CallError`.
            None: the client may.
        task: task that answers the call, once the message is complete.
        responder: answers each message of a call of several; None: the call has one message.
        has_head: true once the headers in front of the answer are sent.
        unsent: part of the answer that the client's window has no room for, and the trailers; None
            in place of these: further answers may follow.

    Args:
        memory: bound on the bytes of all messages.
        message_bytes_max: size of the largest message.
    """

    __slots__ = (
        "_body", "_memory", "_message_bytes_max", "_prefix", "_received_bytes", "_reserved_bytes",
        "deadline_s", "has_head", "is_refused", "number", "request", "responder", "review", "task",
        "unsent",
    )  # fmt: skip

    def __init__(
        self, number: int, request: GrpcRequest, memory: BodyMemory, message_bytes_max: int
    ) -> None:
        self.number = number
        self.request = request
        self.deadline_s = inf
        self.is_refused = False
        self.review: asyncio.Task[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.responder: Responder | None = None
        self.has_head = False
        self.unsent: tuple[memoryview, list[tuple[str, str]] | None] | None = None
        self._memory = memory
        self._message_bytes_max = message_bytes_max
        self._prefix = b""
        self._body: memoryview | None = None
        self._received_bytes = 0
        self._reserved_bytes = 0

    @property
    def is_receiving(self) -> bool:
        """True until its message is complete."""
        return self.task is None and not self.is_refused

    @property
    def has_begun(self) -> bool:
        """True once a part of its message has come."""
        return bool(self._prefix)

    @property
    def is_complete(self) -> bool:
        """True once all of its message has come."""
        return self._body is not None and self._received_bytes == len(self._body)

    def receive(self, data: bytes) -> bytes:
        """Add a part of the message; its memory is reserved as soon as its length is known.

        Returns:
            What comes behind the message; only a call of several has that.

        Raises:
            CallError, MessageError: the call is refused.
        """
        if data and self.unsent is not None:
            raise CallError(429, "an answer to this call is not taken; receive it first")
        missing = _PREFIX.size - len(self._prefix)
        if missing:
            self._prefix += data[:missing]
            data = data[missing:]
            if len(self._prefix) < _PREFIX.size:
                return b""
        if self._body is None:
            self._body = self._memory_of_message()
        end = min(self._received_bytes + len(data), len(self._body))
        part, data = data[: end - self._received_bytes], data[end - self._received_bytes :]
        if data and self.responder is None:
            raise MessageError("the call has bytes after its message; send one message")
        self._body[self._received_bytes : end] = part
        self._received_bytes = end
        return data

    def message(self) -> memoryview:
        """Return the message, which the client has ended.

        Raises:
            MessageError: it is not complete.
        """
        if self._body is None or not self.is_complete:
            raise MessageError("the call has no complete message; send one")
        return self._body

    def begin_message(self) -> None:
        """Prepare for the next message of a call of several."""
        self.release()
        self._prefix, self._received_bytes = b"", 0

    def release(self) -> None:
        """Return the memory of the message."""
        self._body = None
        self._memory.release(self._reserved_bytes)
        self._reserved_bytes = 0

    def hold(self, answer_bytes: int) -> None:
        """Count the answer that the client does not take."""
        self._memory.hold(answer_bytes - self._reserved_bytes)
        self._reserved_bytes = answer_bytes

    def _memory_of_message(self) -> memoryview:
        compression, length = _PREFIX.unpack(self._prefix)
        if compression:
            raise CallError(501, "the message is compressed; send it without compression")
        limit = self._message_bytes_max
        if self.responder is not None:
            limit = min(limit, _SHORT_BYTES_MAX)
        if length > limit:
            self._memory.on_refused(413)
            raise CallError(
                413,
                f"the message has {length:,} bytes, and the limit is {limit:,}; send fewer rows",
            )
        self._memory.reserve(length)
        self._reserved_bytes = length
        return np.empty(length, np.uint8).data


def framed(message: bytes) -> bytes:
    """Return a message as it goes over the connection."""
    return _PREFIX.pack(0, len(message)) + message


def timeout_ms(value: bytes | None) -> float | None:
    """Read the header ``grpc-timeout``.

    Raises:
        CallError: it is invalid.
    """
    if value is None:
        return None
    digits, unit = value[:-1], _UNITS_MS.get(value[-1:])
    if unit is None or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        raise CallError(400, "the header grpc-timeout is invalid; send digits and a unit")
    return int(digits) * unit
