"""One connection of a client: requests are started, and answered in their order."""

from collections import deque
from math import inf
from typing import Any

from scheduler.gateway.calls import CallError
from scheduler.gateway.http.limits import ConnectionSet
from scheduler.gateway.http.messages import (
    HttpAnswer,
    HttpRequest,
    call_error_answer,
    error_answer,
)
from scheduler.gateway.http.receiver import RequestReceiver
from scheduler.server.sockets import source_of

_WRITE_BUFFER_BYTES = 64 * 1024  # answers above it are written as they are, without a copy
PIPELINE_MAX = 64
"""Requests of one connection that may wait for answers; a read can bring a thousand."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(RequestReceiver):
    """Protocol of one connection."""

    def __init__(self, server: ConnectionSet) -> None:
        super().__init__(server)
        self._transport: Any = None
        self._queue: deque[tuple[HttpRequest, bytes | memoryview]] = deque()
        self._running: HttpRequest | None = None
        self._pending: Any = None
        self._unsent_bytes = 0
        self._waits_for_memory = False

    # -- events of the transport -----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Start to read, or refuse one connection too many."""
        self._transport = transport
        self._source = source_of(transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        connections = self._server.connections
        connections.add(self)
        self.deadline_s = self._server.loop.time() + self._limits.head_s
        if len(connections) > self._limits.connections:
            message = (
                f"the gateway has {self._limits.connections:,} connections, its limit; "
                "keep connections open and send several requests over each"
            )
            self.fail(call_error_answer(CallError(503, message, 1.0)))
        elif self._memory.is_scarce:
            self._wait_for_memory()

    def connection_lost(self, _: Exception | None) -> None:
        """Cancel the call in flight and return all memory."""
        connections = self._server.connections
        connections.discard(self)
        if self._server.is_draining and not connections:
            self._server.emptied.set()
        self.stop_receiving()
        self._parser = None
        if self._pending is not None:
            self._pending.cancel()
        if self._running is not None:
            self.release(self._running)
        for queued in self._queue:
            self.release(queued[0])
        self._running = self._pending = None
        self._queue.clear()
        self._sent()

    def eof_received(self) -> bool:
        """Treat the end of the stream as a client that hung up."""
        return False

    def pause_writing(self) -> None:
        """Count the answer that a slow client leaves in memory, and limit its time."""
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._memory.hold(self._unsent_bytes)
        self.deadline_s = self._server.loop.time() + self._limits.write_s

    def resume_writing(self) -> None:
        """Go on with the next request."""
        self._sent()
        self._next()

    # -- answering -------------------------------------------------------------------------------

    def submit(self, request: HttpRequest, body: bytes | memoryview) -> None:
        """Start a request, or queue it behind those before it."""
        if self._running is None and not self._unsent_bytes and not self._queue:
            self._start(request, body)
        elif len(self._queue) >= PIPELINE_MAX and request.keep_alive:  # `fail` sends the last one
            self.release(request)
            message = (
                f"{PIPELINE_MAX} requests of this connection wait; receive their answers first"
            )
            self.fail(call_error_answer(CallError(429, message)))
        else:
            self._queue.append((request, body))
            if not self._unsent_bytes:  # its parts have come, and the answer before it takes longer
                self.deadline_s = inf
            self._follow_reading()

    def invite_body(self) -> None:
        """Send the interim answer, which a request before this one would take for its own."""
        if self._running is None and not self._queue:
            self._transport.write(_CONTINUE)

    def _start(self, request: HttpRequest, body: bytes | memoryview) -> None:
        self._running = request
        self.deadline_s = inf
        if request.refusal is not None:
            self._respond(request, request.refusal)
            return
        self._pending = self._server.application.start(request, body, self._respond)

    def _respond(self, request: HttpRequest, answer: HttpAnswer) -> None:
        if self._running is not request:  # the client hung up
            return
        self._running = self._pending = None
        self.release(request)
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
        self.is_ending = True
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
        if self._waits_for_memory or (self._queue and not self.is_ending):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- time ------------------------------------------------------------------------------------

    def end_slow(self, now_s: float) -> None:
        """End the connection of a slow or idle client, if possible with an answer."""
        if now_s < self.deadline_s:
            return
        self.deadline_s = inf
        if self.is_ending or self._unsent_bytes:
            self._transport.abort()
        elif self.has_part_of_request:
            self.fail(error_answer(408, "the request was not complete in time; send it faster"))
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
