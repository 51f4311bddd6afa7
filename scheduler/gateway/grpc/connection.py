"""One connection of a client: HTTP/2 by h2, with calls and their messages.

Nothing of a message is kept before its memory is reserved, because its length comes first.
"""

import asyncio
import contextlib
from math import inf
from typing import Any, Final

import structlog
from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from scheduler.gateway.calls import CallError
from scheduler.gateway.grpc.frame_guard import FloodError
from scheduler.gateway.grpc.limits import GrpcConnectionSet
from scheduler.gateway.grpc.sender import WRITE_BUFFER_BYTES, AnswerSender
from scheduler.gateway.grpc.stream import (
    GrpcRequest,
    GrpcStream,
    timeout_ms,
)
from scheduler.oip.errors import MessageError
from scheduler.server.sockets import source_of

log = structlog.get_logger(__name__)
_CONTENT_TYPE: Final = b"application/grpc"
_SETTINGS_MAX: Final = 32  # of a client; the protocol has seven, and each costs memory
_LINGER_S: Final = 2.0


class GrpcConnection(AnswerSender, asyncio.BufferedProtocol):
    """Protocol of one connection."""

    def __init__(self, server: GrpcConnectionSet) -> None:
        super().__init__(server)
        self._source = ""
        self._deadline_s = inf  # while there is no call, or the client does not read
        self._waits_for_memory = False
        self._is_leaving = False  # there is no further call

    # -- events of the transport -----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Send the settings, or refuse one connection too many."""
        self._transport = transport
        self._source = source_of(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        connections = self._server.connections
        connections.add(self)
        self._deadline_s = self._now_s() + self._limits.head_s
        if len(connections) > self._limits.connections or self._server.is_draining:
            self._end(ErrorCodes.REFUSED_STREAM)
        elif self._server.memory.is_scarce:
            self._wait_for_memory()  # a client begins no call before it has the settings
        else:
            self._flush()

    def connection_lost(self, _: Exception | None) -> None:
        """Cancel the calls in flight and return all memory."""
        self._end_calls()
        connections = self._server.connections
        connections.discard(self)
        if self._server.is_draining and not connections:
            self._server.emptied.set()

    def get_buffer(self, _: int) -> memoryview:
        """Return memory for the next read."""
        return self._server.receive_buffer

    def buffer_updated(self, size: int) -> None:
        """Process what was read."""
        if self._is_ending:
            return
        data = self._server.receive_buffer[:size]
        try:
            self._guard.check(data)
            for event in self._http2.receive_data(data):
                self._handle(event)
        except FloodError as error:
            log.warning("a connection ended", source=self._source, problem=str(error))
            self._end(ErrorCodes.ENHANCE_YOUR_CALM)
        except ProtocolError:
            self._close()
        except Exception:
            log.exception("a connection ended with an error of the gateway")
            self._transport.abort()
        else:
            self._flush()

    def eof_received(self) -> bool:
        """Treat the end of the stream as a client that hung up."""
        return False

    def pause_writing(self) -> None:
        """Read no more of a client that does not read, and limit its time."""
        self._is_full = True
        self._deadline_s = self._now_s() + self._limits.write_s
        self._follow_reading()

    def resume_writing(self) -> None:
        """Go on with the answers."""
        self._is_full = False
        self._follow_deadline()
        self._follow_reading()
        self._send_unsent()
        self._flush()

    # -- receiving -------------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> None:
        match event:
            case events.DataReceived():
                self._receive(event)
            case events.RequestReceived():
                self._begin(event)
            case events.StreamEnded():
                self._complete(event.stream_id)
            case events.StreamReset():
                if (stream := self._streams.get(event.stream_id)) is not None:
                    self._cancel(stream)
            case events.WindowUpdated():
                self._send_unsent()
            case events.RemoteSettingsChanged():
                self._follow_settings()
            case events.ConnectionTerminated():
                self._close()

    def _follow_settings(self) -> None:
        if len(self._http2.remote_settings) > _SETTINGS_MAX:
            raise FloodError(f"there are more than {_SETTINGS_MAX} settings")
        self._send_unsent()
        self._follow_deadline()

    def _begin(self, event: events.RequestReceived) -> None:
        number = event.stream_id
        metadata: dict[bytes, bytes] = {}
        for name, value in event.headers:
            metadata.setdefault(bytes(name), bytes(value))
        if self._is_leaving:
            self._http2.try_reset(number, ErrorCodes.REFUSED_STREAM)  # a client sends it elsewhere
            return
        if metadata.get(b":method") != b"POST" or not metadata.get(b"content-type", b"").startswith(
            _CONTENT_TYPE
        ):
            self._http2.try_headers(number, [(":status", "415")], ends=True)
            self._http2.try_reset(number, ErrorCodes.NO_ERROR)
            return
        application = self._server.application
        request = GrpcRequest(
            metadata[b":path"], metadata, self._source, application.now_ms(), None
        )
        stream = GrpcStream(number, request, self._server.memory, self._limits.message_bytes)
        stream.deadline_s = self._now_s() + self._limits.head_s
        self._streams[number] = stream
        self._server.calls += 1
        if self._server.calls > self._limits.calls:
            text = f"{self._limits.calls:,} calls are in progress; send the request again later"
            self._refuse(stream, CallError(429, text, 1.0))
            return
        try:
            limit_ms = timeout_ms(metadata.get(b"grpc-timeout"))
            stream.request = request._replace(timeout_ms=limit_ms)
            stream.review = application.accept(stream.request)
            stream.responder = application.responder(stream.request)
        except CallError as error:
            self._refuse(stream, error)
            return
        if stream.review is not None:
            stream.review.add_done_callback(lambda review: self._reviewed(stream, review))

    def _reviewed(self, stream: GrpcStream, review: "asyncio.Task[None]") -> None:
        """Receive no more of a call whose client is refused."""
        if stream.is_receiving and not review.cancelled():
            error = review.exception()
            if isinstance(error, CallError):
                self._refuse(stream, error)
                self._flush()

    def _receive(self, event: events.DataReceived) -> None:
        self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(event.stream_id)
        if stream is None or not stream.is_receiving:
            return
        if not stream.has_begun:
            stream.deadline_s = self._now_s() + self._limits.message_s
        try:
            data = stream.receive(event.data)
            while stream.responder is not None and stream.is_complete:
                self._respond(stream)
                if stream.number not in self._streams:  # the client has reset it
                    return
                data = stream.receive(data)
        except (CallError, MessageError) as error:
            self._refuse(stream, error)

    def _complete(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is None or not stream.is_receiving:
            return
        if stream.responder is not None:
            self._finish(stream)
            return
        try:
            message = stream.message()
        except MessageError as error:
            self._refuse(stream, error)
            return
        stream.deadline_s = inf
        stream.task = self._server.loop.create_task(self._answer(stream, message))

    # -- answering -------------------------------------------------------------------------------

    async def _answer(self, stream: GrpcStream, message: memoryview) -> None:
        try:
            answer = await self._server.application.answer(stream.request, message, stream.review)
        except (CallError, MessageError) as error:
            self._refuse(stream, error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # by the client
                raise
            self._refuse(stream, CallError(503, "the gateway stops; send the request again", 1.0))
        except Exception as error:
            log.error("a call ended with an error of the gateway", exc_info=error)
            text = "an error of the gateway; its log has the cause"
            self._refuse(stream, CallError(500, text))
        else:
            self._send_answer(stream, answer)
        self._flush()

    # -- ends ------------------------------------------------------------------------------------

    def _end_calls(self) -> None:
        self._is_ending = True
        for stream in list(self._streams.values()):
            self._cancel(stream)

    def _cancel(self, stream: GrpcStream) -> None:
        if stream.task is not None:
            stream.task.cancel()
        self._forget(stream)

    def _forget(self, stream: GrpcStream) -> None:
        stream.release()
        self._unsent.pop(stream.number, None)
        if self._streams.pop(stream.number, None) is None:
            return
        self._server.calls -= 1
        if self._streams or self._is_ending:
            return
        self._follow_deadline()
        if self._is_leaving:
            self._server.loop.call_soon(self._close)
        elif self._server.memory.is_scarce:
            self._wait_for_memory()

    def _end(self, code: ErrorCodes) -> None:
        """Close the connection without regard to its calls."""
        if not self._is_ending:
            self._http2.close_connection(code)
            self._close()

    def _close(self) -> None:
        """Send what there is, end all calls, and close when the client does, or after a while.

        A close with unread data resets the connection, and the client may lose what was sent.
        """
        if self._is_ending or self._transport.is_closing():
            return
        self._flush()
        self._end_calls()
        self._deadline_s = self._now_s() + _LINGER_S
        self._follow_reading()
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client has reset the connection
                self._transport.write_eof()
        else:
            self._transport.close()

    def drain(self) -> None:
        """Take no further call, and close the connection after those in flight."""
        if self._is_leaving or self._is_ending:
            return
        self._is_leaving = True
        self._flush()
        self._transport.write(self._http2.leaving())
        for stream in [item for item in self._streams.values() if item.responder is not None]:
            self._finish(stream)
        if not self._streams:
            self._close()

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()

    def end_slow(self, now_s: float) -> None:
        """Refuse the calls, or end the connection, of a slow or idle client."""
        for stream in [item for item in self._streams.values() if item.deadline_s <= now_s]:
            if stream.unsent is None:
                text = "the message was not complete in time; send it faster"
                self._refuse(stream, CallError(408, text))
            else:
                self._http2.try_reset(stream.number, ErrorCodes.CANCEL)
                self._forget(stream)
        if self._deadline_s <= now_s:
            if self._is_ending or self._is_full:
                self._transport.abort()
            elif not self._streams:
                self.drain()
        self._flush()

    # -- reading, writing, time ------------------------------------------------------------------

    def _follow_deadline(self) -> None:
        if not self._is_full and not self._is_ending:
            self._deadline_s = self._now_s() + self._limits.idle_s

    def _wait_for_memory(self) -> None:
        """Read no further call while messages take most of the memory."""
        self._waits_for_memory = True
        self._server.memory.when_plentiful(self._stop_waiting)
        # A transport starts to read after its connection is made, whatever was called there.
        self._server.loop.call_soon(self._follow_reading)

    def _stop_waiting(self) -> None:
        self._waits_for_memory = False
        self._flush()
        self._follow_reading()

    def _follow_reading(self) -> None:
        if self._transport.is_closing():
            return
        if (self._waits_for_memory or self._is_full) and not self._is_ending:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
