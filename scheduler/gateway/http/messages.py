"""Requests and answers of the HTTP front, between connections and the protocol's operations."""

import asyncio
from http import HTTPStatus
from math import ceil, isfinite
from typing import Any, NamedTuple, Protocol

from pydantic_core import to_json

from scheduler.gateway.calls import CallError
from scheduler.model.message_text import quoted

JSON = b"Content-Type: application/json\r\n"
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class HttpRequest:
    """One request; its body is complete when the application starts it.

    Attributes:
        method: HTTP method, as sent.
        target: path and query, as sent.
        headers: values of the headers by name in lower case.
        content_length: announced size of the body; None if it is chunked.
        keep_alive: false if the connection ends with the answer.
        arrival_ms: end of the headers' arrival, by the application's clock.
        source: IP address of the client, or of the last proxy.
        context: data that the application derives from the head; the next request with the same
            head has it, too.
        review: task that ends when the client may make the request, or with a `CallError`; None:
            the client may make it.
    """

    __slots__ = (
        "arrival_ms", "content_length", "context", "headers", "keep_alive", "method",
        "received_bytes", "refusal", "reserved_bytes", "review", "source", "target",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a request's head, once per request
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        content_length: int | None,
        keep_alive: bool,  # noqa: FBT001
        arrival_ms: float,
        source: str,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.content_length = content_length
        self.keep_alive = keep_alive
        self.arrival_ms = arrival_ms
        self.source = source
        self.received_bytes = 0
        self.reserved_bytes = 0
        self.refusal: HttpAnswer | None = None
        self.context: Any = None
        self.review: asyncio.Task[None] | None = None


class HttpAnswer(NamedTuple):
    """An answer: status, header lines but for length and connection, and parts of the body."""

    status: int
    header_lines: bytes
    body: tuple[bytes | memoryview, ...] | list[bytes | memoryview] = ()

    def head(self, *, body_bytes: int, keep_alive: bool) -> bytes:
        """Return status line and headers."""
        return b"%b%bContent-Length: %d\r\n%b\r\n" % (
            _STATUS_LINES[self.status],
            self.header_lines,
            body_bytes,
            b"" if keep_alive else b"Connection: close\r\n",
        )


class Application(Protocol):
    """The part that answers requests; connections call it."""

    def now_ms(self) -> float:
        """Return the time for `HttpRequest.arrival_ms`."""

    def accept(self, request: HttpRequest) -> None:
        """Check a request before its body is read.

        Raises:
            CallError: the request is refused.
        """

    def start(self, request: HttpRequest, body: bytes | memoryview, respond: Any) -> Any:
        """Answer a request by calling ``respond`` with an `HttpAnswer`, now or later.

        Returns:
            A future to cancel when the client hangs up, or None.
        """


def header_ms(headers: dict[bytes, bytes], name: bytes) -> float | None:
    """Return a header's milliseconds; None without it; raises `CallError`."""
    value = headers.get(name)
    if value is None:
        return None
    try:
        value_ms = float(value)
    except ValueError:
        value_ms = -1.0
    if not (isfinite(value_ms) and value_ms >= 0):
        text = quoted(value.decode("latin-1"))
        raise CallError(400, f"the header {name.decode()} is {text}; send milliseconds from 0")
    return value_ms


def json_answer(value: Any, status: int = 200, header_lines: bytes = b"") -> HttpAnswer:
    """Return an answer with a JSON body."""
    return HttpAnswer(status, JSON + header_lines, (to_json(value),))


def error_answer(status: int, message: str, header_lines: bytes = b"") -> HttpAnswer:
    """Return the protocol's error object."""
    return json_answer({"error": message}, status, header_lines)


_UNAUTHORIZED = 401


def call_error_answer(error: CallError) -> HttpAnswer:
    """Return the answer of a call that failed."""
    retry_after_s = error.retry_after_s
    lines = b"" if retry_after_s is None else b"Retry-After: %d\r\n" % max(1, ceil(retry_after_s))
    if error.status == _UNAUTHORIZED:
        lines += b"WWW-Authenticate: Bearer\r\n"
    return error_answer(error.status, str(error), lines)
