"""Connections to a model server by HTTP/1.1: one request at a time each, kept for the next one."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import httptools

from scheduler.gateway.http.body import LongBody
from scheduler.gateway.model_server import ModelServerError

_RECEIVE_BYTES = 16 * 1024
_HEAD_BYTES_MAX = 64 * 1024
_WRITE_BUFFER_BYTES = 64 * 1024  # requests above it are written as they are, without a copy
# Left alone, it grows to megabytes, which the core's caches do not hold: a batch of 1.2 MB takes a
# quarter more CPU time. The kernel limits it by net.core.wmem_max, and doubles it.
_SEND_BUFFER_BYTES = 512 * 1024
_INTERIM_STATUSES = range(100, 200)


class HttpResponse(NamedTuple):
    """A complete response; names of headers are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes | memoryview


class StaleConnectionError(Exception):
    """The server closed a kept connection before it answered."""


class ServerConnection(asyncio.BufferedProtocol):
    """A connection to a model server.

    Attributes:
        is_open: true if the connection can send another request.

    Args:
        server: address of the server, for error messages.
        answer_bytes_max: size of the largest body of a response.
        connections: set of the open connections that this one belongs to.
        idle: open connections without a request, which their owner adds.
    """

    def __init__(
        self,
        server: str,
        answer_bytes_max: int,
        connections: "set[ServerConnection]",
        idle: "dict[ServerConnection, None]",
    ) -> None:
        self.is_open = False
        self._connections = connections
        self._idle = idle
        self._server = server
        self._answer_bytes_max = answer_bytes_max
        self._loop = asyncio.get_running_loop()
        self._receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._transport: Any = None
        self._parser: Any = None
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._answers = 0
        self._status = 0
        self._keeps_alive = False
        self._begin()

    def _begin(self) -> None:
        self._received_bytes = 0
        self._headers: dict[bytes, bytes] = {}
        self._length: int | None = None
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._long_body: LongBody | None = None

    async def exchange(
        self, parts: Sequence[bytes | memoryview], deadline_s: float | None
    ) -> HttpResponse:
        """Send a request; return its response.

        Args:
            parts: head and body of the request.
            deadline_s: end of the exchange's time, by the loop's clock; None: no limit.

        Raises:
            TimeoutError: there is no response in time.
            StaleConnectionError: no byte came, and the connection had been kept.
            ModelServerError: the connection failed, or the response is not HTTP.
        """
        self._begin()
        self._waiter = self._loop.create_future()
        timer = None if deadline_s is None else self._loop.call_at(deadline_s, self._time_out)
        if sum(map(len, parts)) < _WRITE_BUFFER_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)
        try:
            return await self._waiter
        finally:
            if timer is not None:
                timer.cancel()
            if self._waiter is not None:  # cancelled: the response would be the next one's
                self._waiter = None
                self.close()

    def close(self) -> None:
        """Close the connection now."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # -- events of the transport -----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Begin to read."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES
        )
        self._parser = httptools.HttpResponseParser(self)
        self._connections.add(self)
        self.is_open = True

    def connection_lost(self, _: Exception | None) -> None:
        """Fail the request in flight."""
        self.is_open = False
        self._connections.discard(self)
        self._idle.pop(self, None)
        self._parser = None
        if self._answers and not self._received_bytes:
            self._end(StaleConnectionError())
            return
        when = "within its answer" if self._received_bytes else "before it answered"
        message = f"{self._server} closed the connection {when}"
        self._end(ModelServerError(503, message, retryable=True))

    def eof_received(self) -> bool:
        """Close the connection."""
        return False

    def get_buffer(self, _: int) -> memoryview:
        """Return memory for the next read."""
        return self._receive_buffer if self._long_body is None else self._long_body.buffer()

    def buffer_updated(self, size: int) -> None:
        """Process what was read."""
        self._received_bytes += size
        body = self._long_body
        if body is not None:
            body.missing_bytes -= size
            if not body.missing_bytes:
                self._parser = httptools.HttpResponseParser(self)
                self._complete(body.content)
            return
        if self._waiter is None:
            self.close()  # an answer to nothing
            return
        try:
            self._parser.feed_data(self._receive_buffer[:size])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"{self._server} answered, and not by HTTP/1.1: {error}")
            return
        if self._waiter is not None:
            self._follow()

    def _follow(self) -> None:
        """Bypass the parser for the rest of a body; bound what has no announced size."""
        if self._length is not None:
            if self._length > self._answer_bytes_max:
                self._too_large(self._length)
            else:
                self._long_body = LongBody(self._length, self._pieces)
        elif self._body_bytes > self._answer_bytes_max:
            self._too_large(self._body_bytes)
        elif not self._pieces and self._received_bytes > _HEAD_BYTES_MAX:
            self._fail(f"the headers of {self._server} exceed {_HEAD_BYTES_MAX:,} bytes")

    # -- events of the parser --------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Note what the rest of the message depends on."""
        self._status = self._parser.get_status_code()
        self._keeps_alive = self._parser.should_keep_alive()
        length = self._headers.get(b"content-length")
        self._length = None if length is None else int(length)

    def on_body(self, piece: bytes) -> None:
        """Add a part of the body."""
        self._body_bytes += len(piece)
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Return the response, unless it is an interim one."""
        if self._status in _INTERIM_STATUSES:
            self._begin()
        else:
            pieces = self._pieces
            self._complete(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    # -- the end of an exchange ------------------------------------------------------------------

    def _complete(self, body: bytes | memoryview) -> None:
        response = HttpResponse(self._status, self._headers, body)
        self._answers += 1
        self._begin()
        if not self._keeps_alive:
            self.is_open = False
            self._transport.close()
        self._end(response)

    def _too_large(self, size_bytes: int) -> None:
        self._fail(
            f"the answer of {self._server} has {size_bytes:,} bytes or more, and the limit is "
            f"{self._answer_bytes_max:,}; let it answer with fewer or smaller tensors"
        )

    def _fail(self, message: str) -> None:
        self._end(ModelServerError(502, message))
        self.close()

    def _time_out(self) -> None:
        self._end(TimeoutError())
        self.close()

    def _end(self, outcome: HttpResponse | Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if isinstance(outcome, Exception):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)
