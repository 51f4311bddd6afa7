"""Contract of uvicorn's protocol for two private methods that `scheduler.server.bounded` uses."""

import asyncio
from contextlib import asynccontextmanager

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
LONG_S = 3_600


async def app(scope, receive, send):
    """Answer at once."""
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


class RecordingProtocol(HttpToolsProtocol):
    """uvicorn's protocol.

    Attributes:
        begun: Cycles for which a task was started, and true if those before were complete.
        connected: Set once there is a connection.
    """

    def __init__(self, config):
        super().__init__(config, ServerState(), {})
        self.begun = []
        self.connected = asyncio.Event()

    def connection_made(self, transport):
        super().connection_made(transport)
        self.connected.set()

    def _start_asgi_task(self, cycle, app):
        self.begun.append((cycle, all(before.response_complete for before, _ in self.begun)))
        super()._start_asgi_task(cycle, app)


@asynccontextmanager
async def connection():
    """Yield uvicorn's end of a connection, and the client's."""
    config = Config(app, http="httptools", lifespan="off", timeout_keep_alive=LONG_S)
    protocol = RecordingProtocol(config)
    server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await protocol.connected.wait()
        yield protocol, reader, writer
        writer.close()
        await writer.wait_closed()


async def test_each_request_begins_with_start_asgi_task():
    """Pipelined requests begin one after the other, each with its own cycle."""
    async with connection() as (protocol, reader, writer):
        writer.write(3 * REQUEST)
        for _ in range(3):
            await reader.readuntil(b"ok")
        cycles = [cycle for cycle, _ in protocol.begun]
        assert len(set(cycles)) == 3
        assert all(type(cycle) is RequestResponseCycle for cycle in cycles)
        assert all(is_alone for _, is_alone in protocol.begun)


async def test_a_cycle_that_is_marked_as_disconnected_writes_nothing():
    """Its application gets the end of the connection, and may go on to answer."""
    messages = []

    async def late(scope, receive, send):
        [(cycle, _)] = protocol.begun
        cycle.disconnected = True
        cycle.message_event.set()
        messages.append(await receive())
        await app(scope, receive, send)
        writer.write_eof()

    async with connection() as (protocol, reader, writer):
        protocol.app = late
        writer.write(REQUEST)
        assert await reader.read() == b""
        assert messages == [{"type": "http.disconnect"}]


async def test_the_first_byte_ends_the_timer_of_an_idle_connection():
    """Before the first request uvicorn sets no timer, but it ends one that is set."""
    async with connection() as (protocol, reader, writer):
        assert protocol.timeout_keep_alive_task is None
        timer = protocol.loop.call_later(LONG_S, protocol.timeout_keep_alive_handler)
        protocol.timeout_keep_alive_task = timer
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
        assert timer.cancelled()


async def test_unset_keepalive_ends_the_timer_of_an_idle_connection():
    """It may be called again."""
    async with connection() as (protocol, reader, writer):
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
        timer = protocol.timeout_keep_alive_task
        assert timer.when() - protocol.loop.time() > LONG_S / 2
        for _ in range(2):
            protocol._unset_keepalive_if_required()
            assert timer.cancelled()
            assert protocol.timeout_keep_alive_task is None
