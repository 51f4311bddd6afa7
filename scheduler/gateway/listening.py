"""A server of the gateway's clients, whatever they speak: it listens, ends the slow, and drains."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Protocol, TypeVar

SWEEP_S = 1.0
_HANDSHAKE_S = 10.0
_BACKLOG = 1024


class ClientConnection(Protocol):
    """A connection as its server sees it."""

    def end_slow(self, now_s: float) -> None:
        """End what a slow or idle client keeps waiting, by the loop's clock."""

    def drain(self) -> None:
        """Close the connection after its requests."""

    def abort(self) -> None:
        """Close the connection now."""


class Connections(Protocol):
    """Connections of one server.

    Attributes:
        connections: open connections.
        is_draining: true while the server stops and takes no further request.
        emptied: event of the last connection that closes meanwhile.
    """

    is_draining: bool
    emptied: asyncio.Event

    @property
    def connections(self) -> Collection[Any]: ...


_ConnectionsT = TypeVar("_ConnectionsT", bound=Connections)


@contextlib.asynccontextmanager
async def serving(
    connections: _ConnectionsT,
    connection: Callable[[_ConnectionsT], asyncio.BaseProtocol],
    listener: socket.socket,
    *,
    drain_s: float,
    tls: ssl.SSLContext | None,
) -> AsyncIterator[_ConnectionsT]:
    """Answer while inside; at the end, answer the calls in flight and close all connections.

    Args:
        connections: connections of this server.
        connection: factory of the protocol of a new connection.
        listener: socket of `scheduler.server.sockets.listen`; it is closed at the end.
        drain_s: longest time for the calls in flight.
        tls: context of `scheduler.server.certificates.Certificates`, or None.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: connection(connections),
        sock=listener,
        ssl=tls,
        ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
        backlog=_BACKLOG,
    )
    sweep = asyncio.create_task(_end_slow_clients(connections))
    try:
        yield connections
    finally:
        server.close()
        await _drain(connections, drain_s)
        sweep.cancel()


async def _end_slow_clients(connections: Connections) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        now_s = loop.time()
        for connection in list(connections.connections):
            connection.end_slow(now_s)


async def _drain(connections: Connections, drain_s: float) -> None:
    connections.is_draining = True
    for connection in list(connections.connections):
        connection.drain()
    if connections.connections:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await connections.emptied.wait()
    for connection in list(connections.connections):
        connection.abort()
