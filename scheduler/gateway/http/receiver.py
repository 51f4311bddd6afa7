"""Requests of one connection, from the bytes of the client to complete bodies.

Headers and small bodies pass through llhttp; a head that repeats the one before it, byte for byte,
is not parsed again. The rest of a longer body is received straight into its own memory, so that it
is copied once, by the kernel. Whatever a client sends, the worst that happens is an error answer
and the end of its connection.
"""

import asyncio
from abc import ABC, abstractmethod
from math import inf
from typing import Any, NamedTuple

import httptools
import structlog

from scheduler.gateway.calls import CallError
from scheduler.gateway.http.body import LongBody
from scheduler.gateway.http.limits import ConnectionSet
from scheduler.gateway.http.messages import (
    HttpAnswer,
    HttpRequest,
    call_error_answer,
    error_answer,
)
from scheduler.model.message_text import quoted

log = structlog.get_logger(__name__)
_HEAD_BYTES_MAX = 64 * 1024
_DISCARD_BYTES_MAX = 1024 * 1024  # a longer refused body ends its connection
_KNOWN_HEAD_BYTES_MAX = 2048  # each connection keeps one
_DEFECT = "an error of the gateway; its log has the cause"
_HEAD_END = b"\r\n\r\n"


class _KnownHead(NamedTuple):
    """Bytes of a head that the next request may repeat, and their meaning."""

    text: bytes
    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    content_length: int
    context: Any


class RequestReceiver(asyncio.BufferedProtocol, ABC):
    """The receiving half of a connection.

    Attributes:
        deadline_s: time of the loop's clock at which the client is too slow.
        is_ending: true if no further bytes are read as a request.
    """

    def __init__(self, server: ConnectionSet) -> None:
        self.deadline_s = inf
        self.is_ending = False
        self._server = server
        self._limits = server.limits
        self._memory = server.memory
        self._parser: Any = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._head_bytes = 0
        self._chunked_bytes = -1  # of the body of a chunked request, at the last read; -1: no read
        self._receiving: HttpRequest | None = None
        self._pieces: list[bytes] = []  # of a body that comes with its head
        self._chunks = bytearray()  # not pieces: a client makes chunks as small as it likes
        self._long_body: LongBody | None = None
        self._discard_bytes = 0  # rest of a refused body
        self._parsed: HttpRequest | None = None  # the last one of the parser
        self._known_head: _KnownHead | None = None
        self._source = ""  # IP address of the client

    @abstractmethod
    def submit(self, request: HttpRequest, body: bytes | memoryview) -> None:
        """Take a request whose body is complete, or that has a refusal."""

    @abstractmethod
    def invite_body(self) -> None:
        """Tell a client that waits for it to send the body."""

    @property
    def has_part_of_request(self) -> bool:
        """True while a request has begun and is not complete."""
        return self._in_head or self._receiving is not None

    def fail(self, answer: HttpAnswer) -> None:
        """Answer what is no request, after those before it, and end."""
        if not self.is_ending:
            request = HttpRequest(b"", b"", {}, 0, False, 0.0, self._source)
            request.refusal = answer
            self._finish(request, b"")

    def release(self, request: HttpRequest) -> None:
        """Return the memory of a request's body."""
        self._memory.release(request.reserved_bytes)
        request.reserved_bytes = 0

    def stop_receiving(self) -> None:
        """Forget the request that has begun; read no other one."""
        self.is_ending = True
        if self._receiving is not None:
            self.release(self._receiving)
        self._receiving = self._long_body = None

    # -- events of the transport -----------------------------------------------------------------

    def get_buffer(self, _: int) -> memoryview:
        """Return memory for the next read, which ends with the body that it belongs to."""
        buffer = self._server.receive_buffer
        if self._long_body is not None:
            return self._long_body.buffer()
        return buffer[: self._discard_bytes] if self._discard_bytes else buffer

    def buffer_updated(self, size: int) -> None:
        """Process what was read."""
        if self.is_ending:
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
            self._read(size)
            if not self.is_ending:
                self._follow_receiver(size)

    # -- events of the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = True
        self._headers = []  # those of a trailer belong to the request before
        self._head_bytes, self._chunked_bytes = 0, -1

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
        if self.is_ending:
            return
        parser = self._parser
        version = parser.get_http_version()
        chunked = b"transfer-encoding" in headers
        self._parsed = self._receiving = request = HttpRequest(
            parser.get_method(),
            target,
            headers,
            None if chunked else int(headers.get(b"content-length", 0)),
            parser.should_keep_alive() and version == "1.1" and not self._server.is_draining,
            self._server.application.now_ms(),
            self._source,
        )
        try:
            _check_head(request, version)
            self._accept(request)
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
        if request.content_length is not None:
            self._pieces.append(piece)
            return
        try:
            self._reserve(request, len(piece))
        except CallError as error:
            self._refuse(request, call_error_answer(error))
        else:
            self._chunks += piece

    def on_message_complete(self) -> None:
        """Start the request."""
        request = self._receiving
        if request is not None and request.received_bytes >= (request.content_length or 0):
            self._complete(request)

    # -- receiving -------------------------------------------------------------------------------

    def _read(self, size: int) -> None:
        """Process what a read has put into the buffer."""
        buffer = self._server.receive_buffer
        is_between = not self.has_part_of_request
        head = self._known_head
        if is_between and head is not None:
            head_bytes = len(head.text)
            if (
                0 <= size - head_bytes <= head.content_length
                and self._server.receive_memory.startswith(head.text)
            ):
                self._repeat(head, bytes(buffer[head_bytes:size]))
                return
        request = self._parse(buffer[:size])
        if is_between and request is not None:
            self._remember_head(request, size)

    def _parse(self, data: memoryview | None) -> HttpRequest | None:
        """Parse data; return the last request whose head it ended."""
        while data and not self.is_ending:
            data = self._feed(data)
        request, self._parsed = self._parsed, None
        return request

    def _repeat(self, head: _KnownHead, body: bytes) -> None:
        """Begin a request with a known head, and the part of its body that came with it."""
        _, method, target, headers, content_length, context = head
        now_ms = self._server.application.now_ms()
        keep_alive = not self._server.is_draining
        self._receiving = request = HttpRequest(
            method, target, headers, content_length, keep_alive, now_ms, self._source
        )
        request.context = context
        try:
            try:
                self._accept(request)
            except CallError as error:
                self._refuse(request, call_error_answer(error))
            if len(body) == content_length and request.refusal is None:
                self._receiving = None
                self._finish(request, body)
            else:
                self.on_body(body)
                self.on_message_complete()
        except Exception:
            log.exception("a request ended with an error of the gateway")
            self.fail(error_answer(500, _DEFECT))

    def _remember_head(self, request: HttpRequest, size: int) -> None:
        """Remember the head of a request if it began the read and its body ended it."""
        memory = self._server.receive_memory
        head_bytes = memory.find(_HEAD_END, 0, size) + len(_HEAD_END)
        length = request.content_length
        if (
            head_bytes + request.received_bytes == size
            and head_bytes <= _KNOWN_HEAD_BYTES_MAX
            and length is not None
            and request.keep_alive
            and request.refusal is None
            and not request.headers.keys() & {b"expect", b"upgrade"}
        ):
            text = bytes(memory[:head_bytes])
            self._known_head = _KnownHead(
                text, request.method, request.target, request.headers, length, request.context
            )

    def _feed(self, data: memoryview) -> memoryview | None:
        """Parse data; return the rest that another parser must read."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            log.exception("a request ended with an error of the gateway")
            self.fail(error_answer(500, _DEFECT))
        except httptools.HttpParserError as error:
            self.fail(error_answer(400, f"the request is not HTTP/1.1: {error}"))
        return None

    def _ignore_upgrade(self, remaining: memoryview) -> memoryview:
        """Go on after the headers of a request that offers another protocol."""
        self._parser = httptools.HttpRequestParser(self)
        request = self._receiving
        if request is None:
            return remaining
        size = min(len(remaining), request.content_length or 0)
        self.on_body(bytes(remaining[:size]))
        self.on_message_complete()
        return remaining[size:]

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
            else:
                self._follow_chunks(request, size)
        elif self._in_head:
            if not self._head_bytes:
                self.deadline_s = self._server.loop.time() + self._limits.head_s
            self._count_head(size)

    def _follow_chunks(self, request: HttpRequest, size: int) -> None:
        """Limit what brings no part of the body: trailers, and extensions of chunks."""
        if self._chunked_bytes < 0:
            self.deadline_s = self._server.loop.time() + self._limits.body_s
        if request.received_bytes > self._chunked_bytes:
            self._head_bytes = 0
        else:
            self._count_head(size)
        self._chunked_bytes = request.received_bytes

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _HEAD_BYTES_MAX:
            message = f"the headers exceed {_HEAD_BYTES_MAX:,} bytes; send fewer"
            self.fail(error_answer(431, message))

    def _end_of_body(self, body: bytes | memoryview) -> None:
        """Go on after a body that bypassed the parser."""
        request, self._receiving, self._long_body = self._receiving, None, None
        self._parser = httptools.HttpRequestParser(self)
        if request is not None and request.refusal is None:
            self._finish(request, body)

    def _complete(self, request: HttpRequest) -> None:
        self._receiving = None
        if request.refusal is None and request.content_length is None:
            chunks, self._chunks = self._chunks, bytearray()
            self._finish(request, memoryview(chunks))
        elif request.refusal is None:
            pieces, self._pieces = self._pieces, []
            self._finish(request, pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _accept(self, request: HttpRequest) -> None:
        self._server.application.accept(request)
        self._reserve(request, request.content_length or 0)
        if request.review is not None:
            request.review.add_done_callback(lambda review: self._reviewed(request, review))
        if b"expect" in request.headers:
            self.invite_body()

    def _reserve(self, request: HttpRequest, size_bytes: int) -> None:
        limit_bytes = self._limits.body_bytes
        if request.reserved_bytes + size_bytes > limit_bytes:
            self._memory.on_refused(413)
            message = f"the body has more than {limit_bytes:,} bytes; send fewer rows"
            raise CallError(413, message)
        self._memory.reserve(size_bytes)
        request.reserved_bytes += size_bytes

    def _refuse(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Answer before the body is complete; a short one is discarded, a long one ends all."""
        request.refusal = answer
        self._pieces, self._chunks = [], bytearray()
        missing_bytes = (request.content_length or 0) - request.received_bytes
        if (
            request.content_length is None
            or missing_bytes > _DISCARD_BYTES_MAX
            or b"expect" in request.headers
        ):
            request.keep_alive = False
        self._finish(request, b"")

    def _reviewed(self, request: HttpRequest, review: "asyncio.Task[None]") -> None:
        """Receive no more of a body whose sender is refused."""
        if self._receiving is not request or review.cancelled() or request.refusal is not None:
            return
        error = review.exception()
        if isinstance(error, CallError):
            request.keep_alive = False
            self._refuse(request, call_error_answer(error))

    def _finish(self, request: HttpRequest, body: bytes | memoryview) -> None:
        if not request.keep_alive:
            if self._receiving is request:
                self._receiving = None
            self.stop_receiving()
        self.submit(request, body)


def _check_head(request: HttpRequest, version: str) -> None:
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
