"""The HTTP front over a small backend, an HTTP client of model servers and a played one."""

import asyncio
import contextlib
from dataclasses import dataclass

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http.front import HttpFront
from scheduler.gateway.http.limits import ConnectionSet, HttpLimits
from scheduler.gateway.http.model_server import HttpModelServer
from scheduler.gateway.http.server import serving_http
from scheduler.server.sockets import listen
from tests.gateway.backend import BatchingBackend, HeldBackend, backend_of
from workbench.cluster.model_server import PlayedModelServer

HEADER_LENGTH = "inference-header-content-length"


@dataclass
class Gateway:
    port: int
    backend: BatchingBackend | HeldBackend
    memory: BodyMemory
    connections: ConnectionSet
    refused: list[int]
    played: PlayedModelServer | None = None

    async def raw(self, data, *, timeout_s=60):
        """Send bytes on a new connection; return all bytes that come back until its end."""
        async with asyncio.timeout(timeout_s):
            async with connection(self.port) as (reader, writer):
                writer.write(data)
                return await reader.read()

    async def request(self, method, path, body=b"", headers=(), *, source="127.0.0.1"):
        """Send one request on a new connection; return status, headers and body."""
        async with connection(self.port, source=source) as (reader, writer):
            writer.write(request_bytes(method, path, body, headers))
            async with asyncio.timeout(60):
                return await read_answer(reader, head_only=method == "HEAD")


@contextlib.asynccontextmanager
async def gateway(played=None, *, binary=True, rows_max=8, slots=2, **options):
    """Serve a small backend over a played model server."""
    played = played or PlayedModelServer(slots=4)
    async with played.serving():
        server = HttpModelServer("127.0.0.1", played.port, binary=binary)
        async with (
            backend_of(server, rows_max=rows_max, slots=slots) as backend,
            front(backend, **options) as service,
        ):
            service.played = played
            yield service


@contextlib.asynccontextmanager
async def front(backend, *, memory_bytes=2**30, limits=None, tls=None, **options):
    """Serve a backend; at the end, no memory is held."""
    refused = []
    memory = BodyMemory(memory_bytes, refused.append)
    listener = listen(("127.0.0.1", 0), "ESG_TEST")
    port = listener.getsockname()[1]
    serving = serving_http(
        HttpFront(backend, on_refused=refused.append, **options),
        listener,
        memory=memory,
        limits=limits or HttpLimits(),
        tls=tls,
    )
    async with serving as connections:
        yield Gateway(port, backend, memory, connections, refused)
    await eventually(lambda: memory.held_bytes == 0)


async def eventually(condition):
    """Wait until a condition holds; the test's own time limit ends it otherwise."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - conditions of several objects
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def connection(port, *, source="127.0.0.1"):
    """Connect from an address of the loopback."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, limit=2**26, local_addr=(source, 0)
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def request_bytes(method, path, body=b"", headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: gateway", *(f"{k}: {v}" for k, v in headers)]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def read_answer(reader, *, head_only=False):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = b""
    if not head_only:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(first.split(" ")[1]), headers, body
