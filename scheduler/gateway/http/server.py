"""The HTTP front's server: it listens, ends slow connections, and drains."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http.connection import HttpConnection
from scheduler.gateway.http.limits import ConnectionSet, HttpLimits
from scheduler.gateway.http.messages import Application

_SWEEP_S = 1.0
_HANDSHAKE_S = 10.0
_BACKLOG = 1024


@contextlib.asynccontextmanager
async def serving_http(
    application: Application,
    listener: socket.socket,
    *,
    memory: BodyMemory,
    limits: HttpLimits,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ConnectionSet]:
    """Answer while inside; at the end, answer the calls in flight and close all connections.

    Args:
        application: application that answers requests.
        listener: a socket of `scheduler.server.sockets.listen`; it is closed at the end.
        memory: bound on all bodies.
        limits: limits of connections and requests.
        tls: TLS context of `scheduler.server.certificates.Certificates`, or None for plain HTTP.
    """
    loop = asyncio.get_running_loop()
    connections = ConnectionSet(application, memory, limits)
    server = await loop.create_server(
        lambda: HttpConnection(connections),
        sock=listener,
        ssl=tls,
        ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
        backlog=_BACKLOG,
    )
    sweep = asyncio.create_task(_end_slow_connections(connections))
    try:
        yield connections
    finally:
        server.close()
        await _drain(connections)
        sweep.cancel()


async def _end_slow_connections(connections: ConnectionSet) -> None:
    while True:
        await asyncio.sleep(_SWEEP_S)
        now_s = connections.loop.time()
        slow = [item for item in connections.connections if item.deadline_s <= now_s]
        for connection in slow:
            connection.time_out()


async def _drain(connections: ConnectionSet) -> None:
    connections.is_draining = True
    for connection in list(connections.connections):
        connection.drain()
    if connections.connections:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(connections.limits.drain_s):
                await connections.emptied.wait()
    for connection in list(connections.connections):
        connection.abort()
