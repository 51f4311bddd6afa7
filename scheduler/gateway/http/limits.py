"""Limits of the HTTP front, and what the connections of one server share.

They configure the gateway's own server. `scheduler.server.bounded` adds limits to uvicorn, whose
clients send small bodies: there one time covers the body of a request and its answer.
"""

import asyncio
from dataclasses import dataclass

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http.messages import Application
from scheduler.gateway.listening import ClientConnection

RECEIVE_BYTES = 16 * 1024
"""Size of a read while no long body is received; a request of some KB is read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of the HTTP front.

    Attributes:
        body_bytes: size of the largest body of a request.
        connections: largest number of connections at a time.
        idle_s: longest time between two requests of a connection.
        head_s: longest time for a request's headers.
        body_s: longest time for a request's body.
        write_s: longest time for a client to take a part of an answer.
        linger_s: longest time for a client to take the answer to a request that it is still
            sending.
        drain_s: longest time for calls in flight when the server stops.
    """

    body_bytes: int = 64 * 2**20
    connections: int = 10_000
    idle_s: float = 75.0
    head_s: float = 10.0
    body_s: float = 60.0
    write_s: float = 30.0
    linger_s: float = 2.0
    drain_s: float = 30.0


class ConnectionSet:
    """Connections of one server, and what they share."""

    def __init__(self, application: Application, memory: BodyMemory, limits: HttpLimits) -> None:
        self.application = application
        self.memory = memory
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        # Each read ends before the next one begins, so all connections share the memory for it.
        self.receive_memory = bytearray(RECEIVE_BYTES)
        self.receive_buffer = memoryview(self.receive_memory)
        self.connections: set[ClientConnection] = set()
        self.is_draining = False
        self.emptied = asyncio.Event()
