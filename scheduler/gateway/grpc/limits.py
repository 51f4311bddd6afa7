"""Limits of the gRPC server, and what its connections share."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.grpc.stream import GrpcAnswer, GrpcRequest, Responder
from scheduler.gateway.listening import ClientConnection

RECEIVE_BYTES = 32 * 1024
"""Size of a read: the event loop gets to others after so many bytes of small frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """Bounds of the server.

    Attributes:
        message_bytes: size of the largest message of a request.
        connections: largest number of connections at a time.
        streams: largest number of calls of one connection at a time.
        calls: largest number of calls of all connections at a time.
        head_s: longest time for a new connection to speak HTTP/2, and for a call to begin its
            message.
        message_s: longest time for a call's message.
        idle_s: longest time of a connection without a call.
        write_s: longest time for a client to take a part of an answer.
        drain_s: longest time for the calls in flight when the server stops.
    """

    message_bytes: int = 64 * 2**20
    connections: int = 1_000
    streams: int = 256
    calls: int = 10_000
    head_s: float = 10.0
    message_s: float = 60.0
    idle_s: float = 75.0
    write_s: float = 30.0
    drain_s: float = 20.0


class GrpcApplication(Protocol):
    """The part that answers calls; connections call it."""

    def now_ms(self) -> float:
        """Return the time for `GrpcRequest.arrival_ms`."""

    def accept(self, request: GrpcRequest) -> "asyncio.Task[None] | None":
        """Check a call before its message is read.

        Returns:
            A task that ends when it is known that the client may call, or with a `CallError`;
            None: it may.

        Raises:
            CallError: the call is refused.
        """

    def responder(self, request: GrpcRequest) -> Responder | None:
        """Return what answers each message of a call of several; None: the call has one."""

    def answer(
        self, request: GrpcRequest, message: memoryview, review: "asyncio.Task[None] | None"
    ) -> Awaitable[GrpcAnswer]:
        """Answer a call, whose `accept` has returned ``review``.

        Raises:
            CallError, MessageError: there is no answer.
        """


class GrpcConnectionSet:
    """Connections of one server, and what they share."""

    def __init__(
        self, application: GrpcApplication, memory: BodyMemory, limits: GrpcLimits
    ) -> None:
        self.application = application
        self.memory = memory
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        # Each read ends before the next one begins, so all connections share the memory for it.
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.connections: set[ClientConnection] = set()
        self.calls = 0
        self.is_draining = False
        self.emptied = asyncio.Event()
