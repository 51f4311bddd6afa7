"""The sending half of a connection: answers as the client's windows have room, and refusals."""

from typing import Any, Final

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from scheduler.gateway.calls import CallError
from scheduler.gateway.grpc.frame_guard import FrameGuard
from scheduler.gateway.grpc.http2 import Http2
from scheduler.gateway.grpc.limits import GrpcConnectionSet
from scheduler.gateway.grpc.status import HEAD, SUCCESS, refusal
from scheduler.gateway.grpc.stream import GrpcAnswer, GrpcStream, framed
from scheduler.oip.errors import MessageError

WRITE_BUFFER_BYTES: Final = 256 * 1024


class AnswerSender:
    """Calls of one connection, and what is sent to them."""

    def __init__(self, server: GrpcConnectionSet) -> None:
        self._server = server
        self._limits = server.limits
        self._transport: Any = None
        self._guard = FrameGuard()
        self._http2 = Http2(
            streams=server.limits.streams, message_bytes=server.limits.message_bytes
        )
        self._streams: dict[int, GrpcStream] = {}
        self._unsent: dict[int, GrpcStream] = {}  # those whose client has no window
        self._is_full = False  # the client does not read
        self._is_ending = False  # what comes is ignored

    def _forget(self, stream: GrpcStream) -> None:
        raise NotImplementedError

    def _send_answer(self, stream: GrpcStream, answer: GrpcAnswer) -> None:
        if stream.number not in self._streams:
            return
        if self._send_head(stream):
            self._guard.call_answered(len(answer.message))
            stream.unsent = memoryview(framed(answer.message)), [SUCCESS, *answer.metadata]
            stream.release()
            self._send_message(stream)

    def _send_message(self, stream: GrpcStream) -> None:
        """Send what the windows and the connection have room for, and at the end the trailers."""
        assert stream.unsent is not None  # noqa: S101 - there is an answer
        data, trailers = stream.unsent
        http2, number = self._http2, stream.number
        try:
            while data and not self._is_full:
                size = min(len(data), http2.room(number))
                if size <= 0:
                    break
                http2.send_data(number, data[:size])
                data = data[size:]
                self._flush()
        except ProtocolError:  # the client has reset it, or is leaving
            self._forget(stream)
            return
        if data:
            stream.unsent = data, trailers
            stream.hold(len(data))
            stream.deadline_s = self._now_s() + self._limits.write_s
            self._unsent[number] = stream
        elif trailers is None:
            stream.release()
            stream.unsent = None
            self._unsent.pop(number, None)
        else:
            http2.try_headers(number, trailers, ends=True)
            if stream.responder is not None:  # the client may not have ended its half
                http2.try_reset(number, ErrorCodes.NO_ERROR)
            self._forget(stream)

    def _send_unsent(self) -> None:
        for stream in list(self._unsent.values()):
            self._send_message(stream)

    def _refuse(self, stream: GrpcStream, error: CallError | MessageError) -> None:
        """Answer with an error, whether the message is complete or not."""
        if stream.number not in self._streams:
            return
        stream.is_refused = True
        self._guard.call_answered(0)
        headers = refusal(error)
        self._http2.try_headers(
            stream.number, headers[len(HEAD) :] if stream.has_head else headers, ends=True
        )
        if stream.task is None:
            self._http2.try_reset(stream.number, ErrorCodes.NO_ERROR)
        self._forget(stream)

    # -- calls of several messages ---------------------------------------------------------------

    def _respond(self, stream: GrpcStream) -> None:
        """Answer one message of a call.

        Raises:
            CallError, MessageError: the call is refused.
        """
        assert stream.responder is not None  # noqa: S101 - of such a call
        answer = stream.responder(stream.message())
        stream.begin_message()
        stream.deadline_s = self._now_s() + self._limits.message_s
        if self._send_head(stream):
            self._guard.call_answered(len(answer))
            stream.unsent = memoryview(framed(answer)), None
            self._send_message(stream)

    def _finish(self, stream: GrpcStream) -> None:
        """End a call of several messages after the last one."""
        if stream.has_begun:
            self._refuse(stream, MessageError("the call has no complete message; send one"))
        elif self._send_head(stream):
            data = memoryview(b"") if stream.unsent is None else stream.unsent[0]
            stream.unsent = data, [SUCCESS]
            self._send_message(stream)

    def _send_head(self, stream: GrpcStream) -> bool:
        """Send the headers in front of the first answer; return false if the call has ended."""
        if not stream.has_head:
            stream.has_head = self._http2.try_headers(stream.number, HEAD)
            if not stream.has_head:
                self._forget(stream)
        return stream.has_head

    # -- writing ---------------------------------------------------------------------------------

    def _flush(self) -> None:
        data = self._http2.data_to_send()
        if data and not self._transport.is_closing() and not self._is_ending:
            self._transport.write(data)

    def _now_s(self) -> float:
        return self._server.loop.time()
