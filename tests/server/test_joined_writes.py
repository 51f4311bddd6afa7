"""Writes of a response: its head leaves with the first part of its body."""

import asyncio

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from scheduler.server.bounded import HeadLimitedProtocol


class RecordingTransport:
    """A transport that remembers what is written."""

    def __init__(self, transport):
        self._transport = transport
        self.written = []

    def write(self, data):
        self.written.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


class RecordingProtocol(HeadLimitedProtocol):
    def connection_made(self, transport):
        super().connection_made(RecordingTransport(transport))


async def app(scope, receive, send):
    """Answer with the body of the request; fail before the body for ``/fails``."""
    body = (await receive())["body"]
    length = b"%d" % len(body)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
    )
    if scope["path"] == "/fails":
        raise RuntimeError("no body")
    await send({"type": "http.response.body", "body": body[:1], "more_body": True})
    await send({"type": "http.response.body", "body": body[1:]})


async def writes(request):
    """Send a request; return what the server wrote until it closed the connection."""
    config = Config(app, http="httptools", lifespan="off", log_level="critical")
    config.load()
    protocol = RecordingProtocol(config, ServerState(), {})
    server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(request)
        received = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert received == b"".join(protocol.transport.written)
    return protocol.transport.written


def request(method="POST", path="/", headers=b""):
    return b"%s %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n%s\r\nok" % (
        method.encode(),
        path.encode(),
        headers,
    )


async def test_the_head_and_the_first_part_of_the_body_are_one_write():
    """The client wakes up once."""
    first, second = await writes(request())
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\no")
    assert second == b"k"


@pytest.mark.parametrize(("method", "path"), [("HEAD", "/"), ("POST", "/fails")])
async def test_a_head_without_a_body_is_written(method, path):
    """Also if the body never comes."""
    [head] = await writes(request(method, path))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")


async def test_a_client_that_waits_for_100_continue_gets_it_first():
    """It sends its body afterwards."""
    first, head, _ = await writes(request(headers=b"Expect: 100-continue\r\n"))
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
