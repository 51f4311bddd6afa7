"""Clients that flood one port: ``python -m tests.floods.clients FLOOD PORT [tls]``.

A client of its own process neither slows nor grows the one that measures. Each ends by itself,
after `FLOOD_S` or `BYTES_MAX` for each connection, and when the server closes its connections.
"""

import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

from tests.floods.grpc_clients import BYTES_MAX, GRPC_FLOODS

FLOOD_S = 4.0
_PART = b"a" * 2**16
_HEAD = b"GET / HTTP/1.1\r\nHost: h\r\n"
_POST = b"POST /n/v2/models/w/infer HTTP/1.1\r\nHost: h\r\n"
Parts = Iterator[bytes]


def _repeated(start: bytes, part: bytes) -> Callable[[], Parts]:
    def parts() -> Parts:
        yield start
        for _ in range(BYTES_MAX // len(part)):
            yield part

    return parts


def _large_json() -> Parts:
    numbers = b"[" + b"0.123456," * 820_000 + b"0]"  # 7.4 MiB
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[820001,1],"data":' + numbers + b"}]}"
    request = _POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(BYTES_MAX // len(request)):
        yield request


def _nothing() -> Parts:
    yield from ()


def _pipelined() -> Parts:
    yield from iter([(_HEAD + b"\r\n") * 1_000] * 100)


FLOODS: dict[str, tuple[int, Callable[[], Parts]]] = {
    "one header": (4, _repeated(_HEAD + b"A: ", _PART)),
    "many headers": (4, _repeated(_HEAD, b"A: b\r\n" * 10_000)),
    "path": (4, _repeated(b"GET /", _PART)),
    "trailers": (
        4,
        _repeated(_POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: ", _PART),
    ),
    "chunks without end": (
        8,
        _repeated(_POST + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + _PART + b"\r\n"),
    ),
    "body of 1 GiB": (8, _repeated(_POST + b"Content-Length: 1073741824\r\n\r\n", _PART)),
    "numbers as JSON": (4, _large_json),
    "silent connections": (300, _nothing),
    "pipelined requests": (8, _pipelined),
}
"""Connections and the parts that each of them sends, by name."""


STAYING = {"silent connections", "messages without end"}
"""Those whose connections stay until the end of the flood."""


def flood(name: str, port: int, tls: ssl.SSLContext | None) -> None:
    """Send one flood, and read no answer."""
    connections, parts_of = (FLOODS | GRPC_FLOODS)[name]
    end_s = time.monotonic() + FLOOD_S
    with ExitStack() as stack:
        streams: list[tuple[socket.socket, Parts]] = []
        for _ in range(connections):
            with suppress(OSError):
                client = socket.create_connection(("127.0.0.1", port), timeout=FLOOD_S)
                if tls is not None:
                    client = tls.wrap_socket(client)
                client.settimeout(0.2)
                streams.append((stack.enter_context(client), parts_of()))
        while streams and time.monotonic() < end_s:
            streams = [stream for stream in streams if _goes_on(*stream)]
        if name in STAYING:
            time.sleep(max(0.0, end_s - time.monotonic()))


def _goes_on(client: socket.socket, parts: Parts) -> bool:
    part = next(parts, None)
    if part is None:
        return False
    try:
        client.sendall(part)
    except TimeoutError:  # the server reads no more for now; a part was cut, which is a flood, too
        return True
    except OSError:
        return False
    return True


if __name__ == "__main__":
    _context = ssl.create_default_context()
    _context.check_hostname, _context.verify_mode = False, ssl.CERT_NONE
    flood(sys.argv[1], int(sys.argv[2]), _context if "tls" in sys.argv[3:] else None)
