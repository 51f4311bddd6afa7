"""Bounds on what a client sends around its calls: HTTP/2 has many frames that cost it nothing.

h2 checks a frame when all of it is there, and the headers of a call when their last part is. Both
may be megabytes by then, so their announced lengths are checked here first (RFC 9113, 4.1).
"""

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX: Final = 16 * 1024
"""Largest frame: the protocol's own default."""
HEADER_BYTES_MAX: Final = 32 * 1024
"""Longest headers of a call, as they come."""
_HEAD_BYTES: Final = 9
_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_SMALL_BYTES: Final = 1024
_IDLE_FRAMES: Final = 10_000
_IDLE_FRAMES_OF_CALL: Final = 20
_ANSWER_BYTES_OF_FRAME: Final = 1024  # a client returns its window in parts of kilobytes


class FloodError(Exception):
    """A client sends what no client needs to send; the text says what."""


class FrameGuard:
    """Reads the heads of all frames of a connection."""

    def __init__(self) -> None:
        self._skip_bytes = len(PREFACE)
        self._head = b""
        self._header_bytes = 0
        self._idle_frames = _IDLE_FRAMES

    def check(self, data: memoryview) -> None:
        """Check the next bytes of the connection, before h2 gets them.

        Raises:
            FloodError: the connection must end.
        """
        position = self._skip_bytes
        while position < len(data):
            head = self._head + bytes(data[position : position + _HEAD_BYTES - len(self._head)])
            position += len(head) - len(self._head)
            if len(head) < _HEAD_BYTES:
                self._head = head
                break
            self._head = b""
            length = int.from_bytes(head[:3], "big")
            self._check_frame(head[3], length)
            position += length
        self._skip_bytes = max(0, position - len(data))

    def call_answered(self, answer_bytes: int) -> None:
        """Allow the frames that belong to a call."""
        frames = _IDLE_FRAMES_OF_CALL + answer_bytes // _ANSWER_BYTES_OF_FRAME
        self._idle_frames = min(_IDLE_FRAMES, self._idle_frames + frames)

    def _check_frame(self, kind: int, length: int) -> None:
        if length > FRAME_BYTES_MAX:
            raise FloodError(f"a frame has {length:,} bytes")
        if kind == _DATA and length >= _SMALL_BYTES:
            return
        self._idle_frames -= 1
        if self._idle_frames < 0:
            raise FloodError("there are many frames and few calls")
        if kind in {_HEADERS, _CONTINUATION}:
            self._header_bytes = length if kind == _HEADERS else self._header_bytes + length
            if self._header_bytes > HEADER_BYTES_MAX:
                raise FloodError(f"headers have more than {HEADER_BYTES_MAX:,} bytes")
