"""Idle, slow and numerous clients of a port: each ends, and others are served meanwhile."""

import asyncio
import errno
import resource
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import uvicorn
import uvloop

from scheduler.server import bounded
from scheduler.server.bounded import (
    HEAD_BYTES_MAX,
    KUBERNETES_KEEP_ALIVE_S,
    PIPELINE_MAX,
    BoundedServer,
    ClientLimits,
)
from scheduler.server.open_files import raise_open_files_limit
from scheduler.server.sockets import listen
from scheduler.webhook import server as webhook_server
from tests.webhook.harness import issue

LIMITS = ClientLimits(connections_max=8, keep_alive_s=60, header_s=60, exchange_s=60)
REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
CLIENT_IDLE_S = 90  # Kubernetes' clients close a connection that was idle for so long
LARGE = b"x" * 2**24  # more than the buffers of two sockets


@pytest.fixture(
    params=[asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def run(request):
    """Run a coroutine on each kind of event loop."""

    def running(test):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(test, 60))

    return running


async def app(scope, receive, send):
    """Answer at once; for ``/large`` with more than a client's buffers hold."""
    body = LARGE if scope["path"] == "/large" else b"ok"
    length = str(len(body)).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
    )
    for start in range(0, len(body), 2**16):
        part = body[start : start + 2**16]
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Port:
    """A running server, and its clients."""

    def __init__(self, server, number):
        self.server = server
        self._number = number
        self._writers = []

    async def connect(self, source="127.0.0.1", **options):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._number, local_addr=(source, 0), **options
        )
        self._writers.append(writer)
        return reader, writer

    @property
    def connections(self):
        return len(self.server.connections)

    async def close_clients(self):
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(w.wait_closed() for w in self._writers), return_exceptions=True)


@asynccontextmanager
async def serving(limits=LIMITS, **options):
    listener = listen(("127.0.0.1", 0), "")
    config = uvicorn.Config(app, http="httptools", lifespan="off", log_level="error", **options)
    server = BoundedServer(config, limits)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    port = Port(server, listener.getsockname()[1])
    try:
        yield port
    finally:
        server.should_exit = True
        await task
        await port.close_clients()


async def answered(reader, writer):
    """Send a request; true if it is answered."""
    writer.write(REQUEST)
    try:
        return (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    except (OSError, asyncio.IncompleteReadError):
        return False


async def closed(reader):
    """Wait until the server has closed the connection."""
    try:
        return await reader.read() == b""
    except OSError:
        return True


def test_idle_connections_leave_room_for_other_clients(run):
    """A pod that opens connections without end closes its own; the kubelet is served."""

    async def test():
        async with serving() as port:
            for _ in range(40):
                await port.connect("127.0.0.2")
            for _ in range(3):
                reader, writer = await port.connect("127.0.0.3")
                assert await answered(reader, writer)
            assert port.connections <= LIMITS.connections_max

    run(test())


def test_connection_without_a_request_ends(run):
    """After the time that is allowed between two requests."""

    async def test():
        async with serving(replace(LIMITS, keep_alive_s=0)) as port:
            reader, _ = await port.connect()
            assert await closed(reader)

    run(test())


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\n", b"\r\n"])
def test_slow_header_ends(run, start):
    """Further bytes do not extend the time."""

    async def test():
        async with serving(replace(LIMITS, header_s=0.05)) as port:
            reader, writer = await port.connect()
            writer.write(start)
            ending = asyncio.create_task(closed(reader))
            while not ending.done():
                writer.write(b"\r\n" if start == b"\r\n" else b"a")
                await asyncio.wait([ending], timeout=0.01)
            assert await ending

    run(test())


def test_client_that_does_not_read_ends(run):
    """It must not hold a response for good."""

    async def test():
        async with serving(replace(LIMITS, exchange_s=1)) as port:
            reader, writer = await port.connect()
            assert await answered(reader, writer)
            writer.transport.pause_reading()
            writer.write(REQUEST.replace(b"/ ", b"/large "))
            while port.connections:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)

    run(test())


def test_handshakes_count_and_end(run, tmp_path):
    """A client that opens a TLS connection and says nothing has a place for some seconds only."""
    cert, key, trusts = issue(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)

    async def test():
        options = {"ssl_context_factory": lambda _config, _default: tls}
        async with serving(replace(LIMITS, header_s=2), **options) as port:
            silent = [await port.connect("127.0.0.2") for _ in range(40)]
            reader, writer = await port.connect(ssl=trusts, server_hostname="localhost")
            assert await answered(reader, writer)
            assert port.connections <= LIMITS.connections_max
            assert all([await closed(reader) for reader, _ in silent])
            assert port.connections == 1
            assert await answered(reader, writer)

    run(test())


def test_connection_is_reused(run):
    """Requests follow one another, and nothing of one limits the next."""

    async def test():
        async with serving(replace(LIMITS, header_s=1, exchange_s=1)) as port:
            reader, writer = await port.connect()
            assert await answered(reader, writer)
            await asyncio.sleep(1.1)
            assert await answered(reader, writer)

    run(test())


def test_connection_cannot_leave_the_limits(run):
    """A request for a WebSocket is an ordinary request."""

    async def test():
        async with serving() as port:
            reader, writer = await port.connect()
            upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
            key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            writer.write(REQUEST.removesuffix(b"\r\n") + upgrade + key + b"\r\n")
            assert (await reader.readuntil(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"
            writer.transport.abort()
            while port.connections:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)

    run(test())


def test_client_that_hangs_up_is_no_error(run, capfd):
    """Neither within a response nor with further requests sent already; nothing is logged."""

    async def test():
        async with serving() as port:
            for _ in range(20):
                reader, writer = await port.connect()
                writer.write(REQUEST.replace(b"/ ", b"/large ") * 5)
                await reader.readexactly(1000)
                writer.transport.abort()
            while port.connections:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)

    run(test())
    assert capfd.readouterr().err == ""


def test_server_ends_with_open_connections(run):
    """Neither an idle connection nor a handshake delays the exit."""

    async def test():
        async with serving() as port:
            reader, writer = await port.connect()
            assert await answered(reader, writer)
            idle, _ = await port.connect()
        assert await closed(idle)
        assert await closed(reader)

    run(test())


def test_connections_of_kubernetes_outlive_the_client_s_own_limit():
    """A server that closes first answers a request in flight with EOF, and a pod is refused."""
    assert webhook_server.LIMITS.keep_alive_s == KUBERNETES_KEEP_ALIVE_S > CLIENT_IDLE_S


async def test_idle_connection_is_kept_for_that_time():
    """From the last response on, and from the start if no request came yet."""
    async with serving(webhook_server.LIMITS) as port:
        used = await port.connect()
        assert await answered(*used)
        await port.connect()
        assert await answered(*await port.connect())
        now_s = asyncio.get_running_loop().time()
        timers = [p.timeout_keep_alive_task for p in port.server.server_state.connections]
        assert len(timers) == 3
        assert all(timer.when() - now_s > CLIENT_IDLE_S for timer in timers)


@pytest.mark.parametrize("error", [ConnectionAbortedError(), OSError(errno.EMFILE, "no files")])
async def test_a_connection_that_cannot_be_accepted_ends_no_server(monkeypatch, capsys, error):
    """The log says why, unless the client gave up; the next connection is accepted."""
    monkeypatch.setattr(bounded, "_ACCEPT_PAUSE_S", 0)
    loop = asyncio.get_running_loop()
    accept, errors = loop.sock_accept, [error]

    async def failing_once(listener):
        if errors:
            raise errors.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", failing_once)
    async with serving() as port:
        assert await answered(*await port.connect())
    refused = "a connection cannot be accepted: no files" in capsys.readouterr().err
    assert refused == (error.errno == errno.EMFILE)


def test_open_files_limit_is_raised(monkeypatch):
    """To the hard limit, if that is not beyond reason."""
    limits = {"now": (1024, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.update(now=new))
    assert raise_open_files_limit() == 4096
    assert limits["now"] == (4096, 4096)
    limits["now"] = (1024, resource.RLIM_INFINITY)
    assert raise_open_files_limit() == 65_536
    limits["now"] = (100_000, 200_000)
    assert raise_open_files_limit() == 100_000
    assert limits["now"] == (100_000, 200_000)


def header_flood(size):
    """One request whose head has that many bytes before its end is in sight."""
    return b"GET / HTTP/1.1\r\nHost: h\r\nFlood: " + b"a" * size


HEAD_FLOODS = {
    "one header": header_flood(HEAD_BYTES_MAX),
    "many headers": REQUEST.removesuffix(b"\r\n") + b"A: b\r\n" * (HEAD_BYTES_MAX // 4),
    "path": b"GET /" + b"a" * HEAD_BYTES_MAX,
    "complete head": header_flood(HEAD_BYTES_MAX) + b"\r\n\r\n",
    "trailer": (
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nFlood: "
        + b"a" * 2**20  # which is more than one read of a socket
    ),
}


@pytest.mark.parametrize("sent", HEAD_FLOODS.values(), ids=HEAD_FLOODS)
@pytest.mark.parametrize("part", [2**12, 2**24], ids=["in parts", "at once"])
def test_head_beyond_the_limit_is_refused(run, sent, part):
    """The connection ends with 431, and what was read of the head is given up."""

    async def test():
        async with asyncio.timeout(60), serving() as port:
            reader, writer = await port.connect()
            answer = asyncio.create_task(reader.read())
            with suppress(OSError):  # the server closes while the client still sends
                for start in range(0, len(sent), part):
                    writer.write(sent[start : start + part])
                    await writer.drain()
            with suppress(OSError):  # a reset, if bytes were on their way
                assert b"HTTP/1.1 431 " in await answer
            while port.connections:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)

    run(test())


def test_pipeline_beyond_the_limit_is_refused(run):
    """Thousands of requests in one part cost the parsing of a few."""

    async def test():
        async with asyncio.timeout(60), serving() as port:
            reader, writer = await port.connect()
            writer.write(REQUEST * 2_000)
            with suppress(OSError):
                answers = await reader.read()
                assert answers.count(b"HTTP/1.1 200") <= PIPELINE_MAX + 1
            while port.connections:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)

    run(test())


def test_head_below_the_limit_is_answered(run):
    """So is each of several on one connection, whose bytes do not add up, and a chunked body."""
    header = b"Large: " + b"a" * (HEAD_BYTES_MAX - 2_000) + b"\r\n"
    body = b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 30_000 + b"0\r\n\r\n"

    async def test():
        async with serving() as port:
            reader, writer = await port.connect()
            for _ in range(3):
                writer.write(REQUEST.removesuffix(b"\r\n") + header + b"\r\n")
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            writer.write(REQUEST.removesuffix(b"\r\n") + body)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            assert await answered(reader, writer)

    run(test())
