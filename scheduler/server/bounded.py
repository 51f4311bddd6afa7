"""A uvicorn server that bounds what idle, slow and numerous clients can take.

uvicorn accepts every connection, keeps one that never sends a request for good, and waits without
end for a header or for a client that does not read. All pods of the cluster reach the webhook and
the health ports, so each connection takes one of a fixed number of places there, and each phase of
it has a time limit. Connections are counted when they are accepted, before TLS.

The gateway's HTTP front needs none of this: its own server has such limits from the start, and
`scheduler.gateway.http.limits` says what they are.
"""

import asyncio
import logging
import socket
from dataclasses import dataclass
from functools import partial
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from scheduler.server.connections import ConnectionTable
from scheduler.server.sockets import SignallessServer

log = logging.getLogger("uvicorn.error")  # structlog would be half of a health process's start

KUBERNETES_KEEP_ALIVE_S = 120  # Kubernetes' clients close an idle connection after 90 s: not us
HEAD_BYTES_MAX = 64 * 1024
"""Bytes of a request's line and headers, or of its trailers; Kubernetes' have some hundreds."""
PIPELINE_MAX = 16
"""Requests of one connection that may wait for answers; the clients here send one at a time."""
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)
_CONTINUE = b"HTTP/1.1 100 "
_ACCEPT_PAUSE_S = 0.1  # after an error that concerns all connections, such as a lack of memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of the connections of one port.

    Attributes:
        connections_max: maximum number of connections.
        keep_alive_s: time without a request after which a connection is closed, in seconds.
        header_s: time limit of the header of a request, and of the TLS handshake, in seconds.
        exchange_s: time limit from the header to the end of the response, in seconds.
    """

    connections_max: int
    keep_alive_s: int
    header_s: float = 10.0
    exchange_s: float = 60.0


class _HeadTooLargeError(Exception):
    """Ends the parser's work on a request."""


class _PipelineTooLongError(Exception):
    """Ends the parser's work on a connection."""


class _JoinedWrites:
    """The transport of one response: its head and the first part of its body are one write.

    uvicorn writes them one after the other, and uvloop sends each at once: two system calls, and
    the client wakes up twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None  # not written yet; empty: it is

    def write(self, data: bytes) -> None:
        if self._head is None and not data.startswith(_CONTINUE):
            self._head = data
        elif self._head:
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class HeadLimitedProtocol(HttpToolsProtocol):
    """A connection that ends with status 431 once a head or trailer exceeds `HEAD_BYTES_MAX`.

    The parser keeps an unfinished header, however long, and copies it with each part that arrives;
    uvicorn keeps all headers of a request. It also makes an object of each request that one read of
    the socket brings, some thousands: the connection ends beyond `PIPELINE_MAX`.
    """

    _head_bytes = 0  # of the request line, headers and trailers that are complete
    _pending_bytes = 0  # received since the parser last completed a head, a body part or a message

    def data_received(self, data: bytes) -> None:
        self._pending_bytes += len(data)
        super().data_received(data)
        if self._pending_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse_head()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._pending_bytes = 0
        if len(self.pipeline) >= PIPELINE_MAX:
            raise _PipelineTooLongError
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] != "HEAD":  # it has no body that the head could wait for
            cycle.transport = _JoinedWrites(cycle.transport)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def _count_head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX:
            raise _HeadTooLargeError

    def _refuse_head(self) -> None:
        self.transport.write(_HEAD_TOO_LARGE)
        self.transport.close()


class _BoundedConnection:
    """One connection: a handshake in progress, then a protocol."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.handshake: asyncio.Task[None] | None = None
        self.protocol: _BoundedProtocol | None = None

    def is_idle(self) -> bool:
        return self.protocol is None or self.protocol.is_idle()

    def abort(self) -> None:
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()


class _BoundedProtocol(HeadLimitedProtocol):
    def __init__(
        self,
        *,
        limits: ClientLimits,
        table: ConnectionTable,
        connection: _BoundedConnection,
        **uvicorn: Any,
    ) -> None:
        super().__init__(**uvicorn)
        self._limits = limits
        self._table = table
        self._connection = connection
        self._deadline: asyncio.TimerHandle | None = None  # of the header, then of the exchange
        self._running: RequestResponseCycle | None = None

    def is_idle(self) -> bool:
        # uvicorn has no cycle before the first request.
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection.protocol = self
        # Also a connection that never sends a request ends; uvicorn cancels this at the first byte.
        self.timeout_keep_alive_task = self.loop.call_later(
            self._limits.keep_alive_s, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self._connection)
        self._set_deadline(None)
        self._unset_keepalive_if_required()
        # uvicorn marks the newest request only; an earlier one would write to a closed connection,
        # which is an error with a traceback for each client that hangs up.
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and self.is_idle():
            self._set_deadline(self._limits.header_s)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._table.touch(self._connection)
        self._set_deadline(self._limits.exchange_s)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._set_deadline(None)
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the client does not read the last response
        else:
            super().timeout_keep_alive_handler()

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self.transport.abort)


class BoundedServer(SignallessServer):
    """A server of the sockets that are passed to `serve`, within limits."""

    def __init__(self, config: Config, limits: ClientLimits) -> None:
        config.timeout_keep_alive = limits.keep_alive_s
        config.ws = "none"  # a WebSocket would leave the protocol with the limits
        super().__init__(config)
        self.connections = ConnectionTable(limits.connections_max)
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listener in sockets or []:
            listener.setblocking(False)
            self._start(self._accept(listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    def _start(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # the client has given up already
            except OSError as error:
                log.error("a connection cannot be accepted: %s", error.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            if not self.connections.admit(peer[0]):
                accepted.close()
                continue
            connection = _BoundedConnection(peer[0])
            self.connections.add(connection)
            connection.handshake = self._start(self._connect(connection, accepted))

    async def _connect(self, connection: _BoundedConnection, accepted: socket.socket) -> None:
        protocol = partial(
            _BoundedProtocol,
            limits=self._limits,
            table=self.connections,
            connection=connection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        tls = self.config.ssl
        seconds = self._limits.header_s if tls else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except OSError:  # of TLS too
            pass
        finally:
            if connection.protocol is None:
                self.connections.remove(connection)
                accepted.close()
