"""Heads that repeat the one before them are not parsed again, and mean the same."""

import asyncio
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.calls import CallError
from scheduler.gateway.http import receiver as http_receiver
from scheduler.gateway.http.connection import HttpConnection
from scheduler.gateway.http.limits import ConnectionSet, HttpLimits
from scheduler.gateway.http.messages import HttpAnswer

POST = b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
HEADS = (
    POST,
    b"POST /b HTTP/1.1\r\nTraceparent: 00\r\nContent-Length: %d\r\n\r\n",
    b"\r\nPOST /c HTTP/1.1\r\nContent-Length: %d\r\n\r\n",
    b"PUT /d HTTP/1.1\r\nContent-Length: %d\r\n\r\n",
)
BODIES = st.sampled_from([b"", b"\r\n\r\n", b"x", b"POST /a HTTP/1.1\r\n\r\n", bytes(70_000)])


class Application:
    """Refuses the requests with some numbers; notes all, and counts the heads that it reads."""

    def __init__(self, refused, broken=None):
        self.refused = refused
        self.broken = broken
        self.accepted = 0
        self.read_heads = 0
        self.requests = []

    def now_ms(self):
        return 0.0

    def accept(self, request):
        if request.context is None:
            self.read_heads += 1
            request.context = request.target
        self.accepted += 1
        if self.accepted - 1 == self.broken:
            raise RuntimeError("a defect")
        if self.accepted - 1 in self.refused:
            self.requests.append((request.method, request.target, 400, b""))
            raise CallError(400, "refused")

    def start(self, request, body, respond):
        self.requests.append((request.method, request.target, None, bytes(body)))
        respond(request, HttpAnswer(200, b""))


class Transport:
    """Stores what is written; nothing is sent."""

    def __init__(self):
        self.written = b""

    def write(self, data):
        self.written += data

    def get_extra_info(self, name):
        return {"peername": ("::ffff:10.0.0.1", 50_000, 0, 0)}[name]

    def set_write_buffer_limits(self, high):
        pass

    def resume_reading(self):
        pass

    def close(self):
        pass

    def is_closing(self):
        return False

    def can_write_eof(self):
        return False


class Client:
    """One connection in memory."""

    def __init__(self, application):
        self.application = application
        self.server = ConnectionSet(application, BodyMemory(2**30), HttpLimits())
        self.connection = HttpConnection(self.server)
        self._transport = Transport()
        self.connection.connection_made(self._transport)

    def send(self, piece):
        rest = memoryview(piece)
        while rest:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            self.connection.buffer_updated(size)
            rest = rest[size:]

    @property
    def statuses(self):
        """Those of the answers."""
        return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", self._transport.written)]


def receive(pieces, refused=(), broken=None):
    """Return the client of a connection that has sent these pieces."""

    async def run():
        client = Client(Application(refused, broken))
        for piece in pieces:
            client.send(piece)
        assert client.server.memory.held_bytes == 0
        return client

    return asyncio.run(run())


def message(head, body):
    return head % len(body) + body


def expected(head, body, *, refused=False):
    method, path, _ = head.split(maxsplit=2)
    return (method, path, 400 if refused else None, b"" if refused else body)


@given(
    requests=st.lists(st.tuples(st.sampled_from(HEADS), BODIES), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 400_000), max_size=8),
    refused=st.sets(st.integers(0, 7), max_size=3),
)
@example(requests=[(POST, bytes(70_000))] * 3, cuts=[], refused={1})
def test_any_reads_of_a_stream_give_its_requests(requests, cuts, refused):
    """Reads may end anywhere: between requests, within a head or a body."""
    parts = [message(*request) for request in requests]
    whole = b"".join(parts)
    edges = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    wanted = [expected(*request, refused=i in refused) for i, request in enumerate(requests)]
    pieces = [whole[begin:end] for begin, end in pairwise(edges)]
    assert receive(pieces, refused).application.requests == wanted
    assert receive(parts, refused).application.requests == wanted


def test_a_repeated_head_is_not_parsed_again(monkeypatch):
    """The parser sees the first request only; the application reads its head once."""
    fed = []

    class Parser(http_receiver.httptools.HttpRequestParser):
        def feed_data(self, data):
            fed.append(len(data))
            super().feed_data(data)

    monkeypatch.setattr(http_receiver.httptools, "HttpRequestParser", Parser)
    part = message(POST, b"body")
    application = receive([part] * 3).application
    assert fed == [len(part)]
    assert application.requests == [expected(POST, b"body")] * 3
    assert application.read_heads == 1


@pytest.mark.parametrize("broken", [0, 2])
def test_an_error_of_the_gateway_ends_the_connection_with_an_answer(broken):
    """It is an answer with status 500, whether or not the head is known."""
    client = receive([message(POST, b"x")] * 3, broken=broken)
    assert client.statuses == [200] * broken + [500]
    assert client.connection.is_ending


def test_a_draining_server_ends_the_connection_of_a_repeated_head():
    """A request with a known head is the last one, too."""

    async def run():
        client = Client(Application(()))
        for client.server.is_draining in (False, True):
            client.send(message(POST, b"x"))
        return client

    client = asyncio.run(run())
    assert client.statuses == [200, 200]
    assert client.connection.is_ending


def test_long_and_unusual_heads_are_not_remembered():
    """A connection keeps little memory, and only heads of requests that may follow one another."""
    for head in (
        b"POST /a HTTP/1.1\r\nA: " + b"a" * 3000 + b"\r\nContent-Length: %d\r\n\r\n",
        b"POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
        b"POST /a HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n",
    ):
        client = receive([message(head, b"x")] * 2)
        assert client.connection._known_head is None
        assert client.application.requests == [expected(head, b"x")] * 2
