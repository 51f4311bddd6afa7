"""One connection of a client: HTTP/1.1 requests in, answers out in the same order.

Headers and small bodies pass through llhttp. The rest of a longer body is received straight into
its own memory, so that it is copied once, by the kernel. Whatever a client sends, the worst that
happens is an error answer and the end of this connection.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Any

import httptools
import structlog

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.calls import CallError
from scheduler.gateway.http_body import LongBody
from scheduler.gateway.http_messages import (
    Application,
    HttpAnswer,
    HttpRequest,
    call_error_answer,
    error_answer,
)
from scheduler.model.message_text import quoted

log = structlog.get_logger(__name__)
RECEIVE_BYTES = 16 * 1024
"""Size of a read while no long body is received; a request of some KB is read at once."""
_HEAD_BYTES_MAX = 64 * 1024
_WRITE_BUFFER_BYTES = 64 * 1024  # answers above it are written as they are, without a copy
_DISCARD_BYTES_MAX = 1024 * 1024  # a longer refused body ends its connection
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of the HTTP front.

    Attributes:
        body_bytes: largest body of a request.
        connections: connections at a time.
        idle_s: time between two requests of a connection.
        head_s: time for a request's headers.
        body_s: time for a request's body.
        write_s: time for a client to take a part of an answer.
        linger_s: time for a client to take the answer to a request that it is still sending.
        drain_s: time for calls in flight when the server stops.
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
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.connections: set[HttpConnection] = set()
        self.is_draining = False
        self.emptied = asyncio.Event()


class HttpConnection(asyncio.BufferedProtocol):
    """Protocol of one connection.

    Attributes:
        deadline_s: time of the loop's clock at which the client is too slow.
    """

    def __init__(self, server: ConnectionSet) -> None:
        self._server = server
        self._limits = server.limits
        self._memory = server.memory
        self.deadline_s = inf
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        # the request that is received
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._head_bytes = 0
        self._receiving: HttpRequest | None = None
        self._pieces: list[bytes] = []
        self._long_body: LongBody | None = None
        self._discard_bytes = 0  # rest of a refused body
        self._is_ending = False  # what comes is not read as a request
        self._waits_for_memory = False
        # requests that are complete
        self._queue: deque[tuple[HttpRequest, bytes | memoryview]] = deque()
        self._running: HttpRequest | None = None
        self._pending: Any = None
        self._unsent_bytes = 0

    # -- events of the transport -----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Start to read, or refuse one connection too many."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        connections = self._server.connections
        connections.add(self)
        self.deadline_s = self._server.loop.time() + self._limits.head_s
        if len(connections) > self._limits.connections:
            message = (
                f"the gateway has {self._limits.connections:,} connections, its limit; "
                "keep connections open and send several requests over each"
            )
            self._fail(call_error_answer(CallError(503, message, 1.0)))
        elif self._memory.is_scarce:
            self._wait_for_memory()

    def connection_lost(self, _: Exception | None) -> None:
        """Cancel the call in flight and return all memory."""
        connections = self._server.connections
        connections.discard(self)
        if self._server.is_draining and not connections:
            self._server.emptied.set()
        self._is_ending = True
        self._parser = None
        if self._pending is not None:
            self._pending.cancel()
        requests = [request for request, _ in self._queue]
        for request in (self._receiving, self._running, *requests):
            if request is not None:
                self._release(request)
        self._receiving = self._running = self._pending = self._long_body = None
        self._queue.clear()
        self._sent()

    def eof_received(self) -> bool:
        """Treat the end of the stream as a client that hung up."""
        return False

    def get_buffer(self, _: int) -> memoryview:
        """Return memory for the next read, which ends with the body that it belongs to."""
        buffer = self._server.receive_buffer
        if self._long_body is not None:
            return self._long_body.buffer()
        return buffer[: self._discard_bytes] if self._discard_bytes else buffer

    def buffer_updated(self, size: int) -> None:
        """Process what was read."""
        if self._is_ending:
            return
        body = self._long_body
        if body is not None:
            body.missing_bytes -= size
            if not body.missing_bytes:
                self._end_of_body(body.content)
        elif self._discard_bytes:
            self._discard_bytes -= size
            if not self._discard_bytes:
                self._end_of_body(b"")
        else:
            data: memoryview | None = self._server.receive_buffer[:size]
            while data and not self._is_ending:
                data = self._feed(data)
            if not self._is_ending:
                self._follow_receiver(size)

    def pause_writing(self) -> None:
        """Count the answer that a slow client leaves in memory, and limit its time."""
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._memory.hold(self._unsent_bytes)
        self.deadline_s = self._server.loop.time() + self._limits.write_s

    def resume_writing(self) -> None:
        """Go on with the next request."""
        self._sent()
        self._next()

    # -- events of the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """Add a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Accept or refuse the request before its body is read."""
        headers, target = dict(self._headers), self._target
        self._target, self._headers, self._head_bytes, self._in_head = b"", [], 0, False
        if self._is_ending:
            return
        parser = self._parser
        version = parser.get_http_version()
        chunked = b"transfer-encoding" in headers
        self._receiving = request = HttpRequest(
            parser.get_method(),
            target,
            headers,
            None if chunked else int(headers.get(b"content-length", 0)),
            parser.should_keep_alive() and version == "1.1" and not self._server.is_draining,
            self._server.application.now_ms(),
        )
        try:
            self._accept(request, version)
        except CallError as error:
            self._refuse(request, call_error_answer(error))

    def on_body(self, piece: bytes) -> None:
        """Add a part of the body."""
        request = self._receiving
        if request is None:
            return
        request.received_bytes += len(piece)
        if request.refusal is not None:
            return
        if request.content_length is None:
            try:
                self._reserve(request, len(piece))
            except CallError as error:
                self._refuse(request, call_error_answer(error))
                return
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Start the request."""
        request = self._receiving
        if request is not None and request.received_bytes >= (request.content_length or 0):
            self._complete(request)

    # -- receiving -------------------------------------------------------------------------------

    def _feed(self, data: memoryview) -> memoryview | None:
        """Parse data; return the rest that another parser must read."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            log.exception("a request ended with an error of the gateway")
            self._fail(error_answer(500, "an error of the gateway; its log has the cause"))
        except httptools.HttpParserError as error:
            self._fail(error_answer(400, f"the request is not HTTP/1.1: {error}"))
        return None

    def _ignore_upgrade(self, rest: memoryview) -> memoryview:
        """Go on after the headers of a request that offers another protocol."""
        self._parser = httptools.HttpRequestParser(self)
        request = self._receiving
        if request is None:
            return rest
        size = min(len(rest), request.content_length or 0)
        self.on_body(bytes(rest[:size]))
        self.on_message_complete()
        return rest[size:]

    def _follow_receiver(self, size: int) -> None:
        """Bypass the parser for the rest of a body, and limit the time of a request's parts."""
        request = self._receiving
        if request is not None:
            if request.content_length is not None:
                if request.refusal is None:
                    self._long_body = LongBody(request.content_length, self._pieces)
                    self._pieces = []
                else:
                    self._discard_bytes = request.content_length - request.received_bytes
                self.deadline_s = self._server.loop.time() + self._limits.body_s
            elif request.received_bytes <= size:
                self.deadline_s = self._server.loop.time() + self._limits.body_s
        elif self._in_head:
            if not self._head_bytes:
                self.deadline_s = self._server.loop.time() + self._limits.head_s
            self._head_bytes += size
            if self._head_bytes > _HEAD_BYTES_MAX:
                message = f"the headers exceed {_HEAD_BYTES_MAX:,} bytes; send fewer"
                self._fail(error_answer(431, message))

    def _end_of_body(self, body: bytes | memoryview) -> None:
        """Go on after a body that bypassed the parser."""
        request, self._receiving, self._long_body = self._receiving, None, None
        self._parser = httptools.HttpRequestParser(self)
        if request is not None and request.refusal is None:
            self._submit(request, body)

    def _complete(self, request: HttpRequest) -> None:
        self._receiving = None
        if request.refusal is None:
            pieces, self._pieces = self._pieces, []
            self._submit(request, pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _accept(self, request: HttpRequest, version: str) -> None:
        headers = request.headers
        if version not in {"1.1", "1.0"}:
            raise CallError(505, f"the request has HTTP version {version}; use 1.1")
        if request.content_length is None:
            encoding = headers[b"transfer-encoding"]
            if encoding.lower() != b"chunked" or b"upgrade" in headers:
                name = quoted(encoding.decode("latin-1"))
                raise CallError(501, f"Transfer-Encoding {name} is not supported; send the length")
        expectation = headers.get(b"expect")
        if expectation is not None and expectation.lower() != b"100-continue":
            name = quoted(expectation.decode("latin-1"))
            raise CallError(417, f"expectation {name} is not supported; send 100-continue or none")
        self._server.application.accept(request)
        self._reserve(request, request.content_length or 0)
        # A request before this one would take the interim answer for its own.
        if expectation is not None and self._running is None and not self._queue:
            self._transport.write(_CONTINUE)

    def _reserve(self, request: HttpRequest, size_bytes: int) -> None:
        if request.reserved_bytes + size_bytes > self._limits.body_bytes:
            raise CallError(
                413,
                f"the body has more than {self._limits.body_bytes:,} bytes; send fewer rows",
            )
        self._memory.reserve(size_bytes)
        request.reserved_bytes += size_bytes

    def _release(self, request: HttpRequest) -> None:
        self._memory.release(request.reserved_bytes)
        request.reserved_bytes = 0

    def _refuse(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Answer before the body is complete; a short one is discarded, a long one ends all."""
        request.refusal = answer
        self._pieces = []
        missing_bytes = (request.content_length or 0) - request.received_bytes
        if (
            request.content_length is None
            or missing_bytes > _DISCARD_BYTES_MAX
            or b"expect" in request.headers
        ):
            request.keep_alive = False
        self._submit(request, b"")

    def _fail(self, answer: HttpAnswer) -> None:
        """Answer what is no request, after those before it."""
        if not self._is_ending:
            request = HttpRequest(b"", b"", {}, 0, False, 0.0)
            request.refusal = answer
            self._submit(request, b"")

    # -- answering -------------------------------------------------------------------------------

    def _submit(self, request: HttpRequest, body: bytes | memoryview) -> None:
        if not request.keep_alive:
            self._is_ending = True
            if self._receiving is not None and self._receiving is not request:
                self._release(self._receiving)
            self._receiving = self._long_body = None
        if self._running is None and not self._unsent_bytes and not self._queue:
            self._start(request, body)
        else:
            self._queue.append((request, body))
            self._follow_reading()

    def _start(self, request: HttpRequest, body: bytes | memoryview) -> None:
        self._running = request
        self.deadline_s = inf
        if request.refusal is not None:
            self._respond(request, request.refusal)
            return
        pending = self._server.application.start(request, body, self._respond)
        if self._running is request:
            self._pending = pending

    def _respond(self, request: HttpRequest, answer: HttpAnswer) -> None:
        if self._running is not request:  # the client hung up
            return
        self._running = self._pending = None
        self._release(request)
        self.deadline_s = self._server.loop.time() + self._limits.idle_s
        size = sum(map(len, answer.body))
        head = answer.head(body_bytes=size, keep_alive=request.keep_alive)
        if request.method == b"HEAD":
            self._transport.write(head)
        elif size < _WRITE_BUFFER_BYTES:
            self._transport.write(b"".join((head, *answer.body)))
        else:
            self._transport.writelines((head, *answer.body))
        if not request.keep_alive:
            self._end(linger=request.refusal is not None)
        elif self._queue:
            self._server.loop.call_soon(self._next)
        elif self._memory.is_scarce:
            self._wait_for_memory()

    def _next(self) -> None:
        """Start the next request of a client that sends several at once."""
        if self._queue and self._running is None and not self._unsent_bytes:
            self._start(*self._queue.popleft())
            self._follow_reading()

    def _sent(self) -> None:
        self._memory.release(self._unsent_bytes)
        self._unsent_bytes = 0

    def _end(self, *, linger: bool = False) -> None:
        """Close the connection after the answer.

        A close with unread data resets the connection, and a client that is still sending may lose
        the answer; with ``linger``, the client closes first.
        """
        self._is_ending = True
        self.deadline_s = self._server.loop.time() + self._limits.linger_s
        if not linger:
            self._transport.close()
            return
        self._follow_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # -- reading or not --------------------------------------------------------------------------

    def _wait_for_memory(self) -> None:
        """Read no further request while bodies take most of the memory."""
        self._waits_for_memory = True
        self._memory.when_plentiful(self._stop_waiting)
        # A transport starts to read after its connection is made, whatever was called there.
        self._server.loop.call_soon(self._follow_reading)

    def _stop_waiting(self) -> None:
        self._waits_for_memory = False
        self._follow_reading()

    def _follow_reading(self) -> None:
        if self._transport.is_closing():
            return
        if self._waits_for_memory or (self._queue and not self._is_ending):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- time ------------------------------------------------------------------------------------

    def time_out(self) -> None:
        """End the connection of a slow or idle client, if possible with an answer."""
        self.deadline_s = inf
        if self._is_ending or self._unsent_bytes:
            self._transport.abort()
        elif self._receiving is not None or self._in_head:
            self._fail(error_answer(408, "the request was not complete in time; send it faster"))
        else:
            self._end()

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()

    def drain(self) -> None:
        """Close the connection, after the answer to the request that came last."""
        if self._running is not None:
            self._running.keep_alive = False
        elif self._receiving is not None:
            self._receiving.keep_alive = False
        elif not self._in_head and not self._unsent_bytes:
            self._end()
