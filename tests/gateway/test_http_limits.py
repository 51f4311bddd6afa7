"""Bounds of the HTTP front: memory, time, connections; clients that hang up; the end."""

import asyncio
import contextlib
import socket
import ssl
import tracemalloc

import numpy as np
import pytest

from scheduler.gateway import listening
from scheduler.gateway.calls import CallError
from scheduler.gateway.http.connection import PIPELINE_MAX
from scheduler.gateway.http.limits import HttpLimits
from scheduler.server.certificates import Certificates
from tests.gateway.backend import HeldBackend
from tests.gateway.harness import (
    connection,
    eventually,
    front,
    gateway,
    read_answer,
    request_bytes,
)
from tests.gateway.messages import INFER, error_of, infer_body, infer_outputs, rows_of
from tests.testbed.pki import Authority

BODY, HEADERS = infer_body(rows_of(1, 1, 1000))
REQUEST = request_bytes("POST", INFER, BODY, HEADERS)


@pytest.fixture
def _frequent_sweep(monkeypatch):
    monkeypatch.setattr(listening, "SWEEP_S", 0.01)


async def test_bodies_beyond_the_bound_are_refused_before_they_are_read():
    """429 with Retry-After; the memory of answered calls serves the next ones."""
    async with (
        front(HeldBackend(), memory_bytes=2 * len(BODY)) as service,
        connection(service.port) as (reader, writer),
        connection(service.port) as (second_reader, second_writer),
        connection(service.port) as (third_reader, third_writer),
    ):
        await eventually(lambda: len(service.connections.connections) == 3)
        writer.write(REQUEST)
        second_writer.write(REQUEST)
        await eventually(lambda: len(service.backend.calls) == 2)
        assert service.memory.held_bytes == 2 * len(BODY)
        third_writer.write(REQUEST)
        status, headers, body = await read_answer(third_reader)
        assert (status, headers["retry-after"]) == (429, "1")
        assert "send the request again later" in error_of(body)
        assert service.refused == [429]
        service.backend.answer(0)
        assert (await read_answer(reader))[0] == 200
        service.backend.answer(1)
        assert (await read_answer(second_reader))[0] == 200
        third_writer.write(REQUEST)
        await eventually(lambda: len(service.backend.calls) == 3)
        service.backend.answer(2)
        assert (await read_answer(third_reader))[0] == 200


async def test_new_connections_wait_while_memory_is_scarce():
    """Above 80 % they are not read, so that they need not be refused."""
    async with (
        front(HeldBackend(), memory_bytes=int(1.1 * len(BODY))) as service,
        connection(service.port) as (reader, writer),
    ):
        writer.write(REQUEST)
        await eventually(lambda: service.memory.is_scarce)
        async with connection(service.port) as (second_reader, second_writer):
            second_writer.write(REQUEST)
            await eventually(lambda: len(service.connections.connections) == 2)
            assert len(service.backend.calls) == 1
            service.backend.answer(0)
            assert (await read_answer(reader))[0] == 200
            await eventually(lambda: len(service.backend.calls) == 2)
            service.backend.answer(1)
            assert (await read_answer(second_reader))[0] == 200


async def test_a_chunked_body_is_bounded_as_it_comes():
    """Its size is not announced, so the limit and the bound on memory hold for each part."""
    for limits, memory_bytes, expected in (
        (HttpLimits(body_bytes=50_000), 2**30, 413),
        (HttpLimits(), 50_000, 429),
    ):
        async with (
            front(HeldBackend(), limits=limits, memory_bytes=memory_bytes) as service,
            connection(service.port) as (reader, writer),
        ):
            headers = [("Transfer-Encoding", "chunked")]
            writer.write(request_bytes("POST", INFER, headers=headers))
            for _ in range(10):
                writer.write(b"2710\r\n" + b" " * 10_000 + b"\r\n")
            status, answer_headers, body = await read_answer(reader)
            assert (status, answer_headers["connection"]) == (expected, "close")
            assert "bytes" in error_of(body)
            assert service.refused == [expected]
            assert service.memory.held_bytes == 0


async def test_small_chunks_take_no_more_memory_than_is_counted():
    """An object for each would take twenty times as much."""
    chunks = 100_000
    async with (
        front(HeldBackend()) as service,
        connection(service.port) as (_, writer),
    ):
        writer.write(request_bytes("POST", INFER, headers=[("Transfer-Encoding", "chunked")]))
        tracemalloc.start()
        try:
            writer.write(b"2\r\nab\r\n" * chunks)
            await eventually(lambda: service.memory.held_bytes == 2 * chunks)
            assert tracemalloc.get_traced_memory()[0] < 5 * chunks
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("size", [PIPELINE_MAX, PIPELINE_MAX + 100])
async def test_the_requests_of_a_connection_that_wait_are_bounded(size):
    """The first one too many is refused after those before it, and ends the connection."""
    async with (
        front(HeldBackend()) as service,
        connection(service.port) as (reader, writer),
    ):
        writer.write(REQUEST)
        await eventually(lambda: service.backend.calls)
        [client] = service.connections.connections
        writer.write(request_bytes("GET", "/v2") * size)
        await eventually(lambda: client.is_ending or size <= PIPELINE_MAX)
        service.backend.answer(0)
        for _ in range(1 + PIPELINE_MAX):
            assert (await read_answer(reader))[0] == 200
        if size > PIPELINE_MAX:
            status, headers, _ = await read_answer(reader)
            assert (status, headers["connection"]) == (429, "close")
            assert await reader.read() == b""


@pytest.mark.usefixtures("_frequent_sweep")
async def test_a_request_behind_another_one_does_not_end_its_connection():
    """Its own time is over once it is complete, however long the answer before it takes."""
    limits = HttpLimits(head_s=0.02)
    second = request_bytes("GET", "/v2")
    async with (
        front(HeldBackend(), limits=limits) as service,
        connection(service.port) as (reader, writer),
    ):
        writer.write(REQUEST)
        await eventually(lambda: service.backend.calls)
        [client] = service.connections.connections
        writer.write(second[:10])
        await eventually(lambda: client.has_part_of_request)
        writer.write(second[10:])
        await asyncio.sleep(0.1)  # the sweep has come by
        service.backend.answer(0)
        for _ in range(2):
            assert (await read_answer(reader))[0] == 200


@pytest.mark.parametrize("abortive", [True, False])
async def test_a_client_that_hangs_up_cancels_its_call(abortive):
    """Its future is cancelled and its memory returned; the requests behind it never begin."""
    async with front(HeldBackend()) as service:
        with socket.create_connection(("127.0.0.1", service.port)) as client:
            client.sendall(REQUEST)
            await eventually(lambda: service.backend.calls)
            if abortive:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await eventually(service.backend.calls[0][1].cancelled)
        assert len(service.backend.calls) == 1


@pytest.mark.usefixtures("_frequent_sweep")
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"GET /v2 HTTP/1.1\r\nHo", 408),
        (b"P", 408),
        (REQUEST[:-1], 408),
        (REQUEST[: REQUEST.index(b"\r\n\r\n") + 4], 408),
    ],
)
async def test_slow_clients_are_disconnected(sent, status):
    """An incomplete request is answered with 408; an idle connection just ends."""
    limits = HttpLimits(idle_s=0.05, head_s=0.05, body_s=0.05)
    async with front(HeldBackend(), limits=limits) as service:
        answer = await service.raw(sent)
        if status is None:
            assert answer == b""
        else:
            assert answer.startswith(b"HTTP/1.1 %d " % status)
        await eventually(lambda: not service.connections.connections)


@pytest.mark.usefixtures("_frequent_sweep")
async def test_a_chunk_without_an_end_is_slow():
    """The time of a body does not begin again with each byte of a chunk's extension."""
    async with (
        front(HeldBackend(), limits=HttpLimits(body_s=0.05)) as service,
        connection(service.port) as (reader, writer),
    ):
        chunked = request_bytes("POST", INFER, headers=[("Transfer-Encoding", "chunked")])
        writer.write(chunked + b"1\r\na\r\n1;")
        answer = asyncio.ensure_future(read_answer(reader))
        async with asyncio.timeout(10):
            while not answer.done():
                writer.write(b"x")
                await asyncio.wait((answer,), timeout=0.01)
        assert answer.result()[0] == 408


@pytest.mark.usefixtures("_frequent_sweep")
async def test_a_client_that_does_not_read_its_answer_is_disconnected():
    """Its answer counts as held memory until then."""
    body, headers = infer_body(np.zeros((1, 4_000_000), np.float32))
    async with front(HeldBackend(), limits=HttpLimits(write_s=1.0)) as service:
        with socket.create_connection(("127.0.0.1", service.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            request = request_bytes("POST", INFER, body, headers)
            await asyncio.get_running_loop().run_in_executor(None, client.sendall, request)
            await eventually(lambda: service.backend.calls)
            service.backend.answer()
            await eventually(lambda: service.memory.held_bytes > 0)
            await eventually(lambda: not service.connections.connections)
        service.backend.calls.clear()


async def test_the_connections_are_bounded():
    """One too many is told so and closed; the others serve on."""
    async with (
        front(HeldBackend(), limits=HttpLimits(connections=2)) as service,
        connection(service.port) as (reader, writer),
        connection(service.port),
    ):
        await eventually(lambda: len(service.connections.connections) == 2)
        answer = await service.raw(b"")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in answer
        writer.write(request_bytes("GET", "/v2"))
        assert (await read_answer(reader))[0] == 200


async def test_a_stop_waits_for_the_calls_in_flight():
    """They are answered with Connection: close; idle connections end at once."""
    async with contextlib.AsyncExitStack() as clients:
        async with front(HeldBackend()) as service:
            reader, writer = await clients.enter_async_context(connection(service.port))
            idle_reader, _ = await clients.enter_async_context(connection(service.port))
            partial_reader, partial_writer = await clients.enter_async_context(
                connection(service.port)
            )
            writer.write(REQUEST)
            partial_writer.write(REQUEST[:-1])
            await eventually(lambda: service.memory.held_bytes == 2 * len(BODY))
            await eventually(lambda: len(service.connections.connections) == 3)

            async def finish():
                await eventually(lambda: service.connections.is_draining)
                assert await idle_reader.read() == b""
                partial_writer.write(REQUEST[-1:])
                await eventually(lambda: len(service.backend.calls) == 2)
                service.backend.answer(0)
                service.backend.answer(1)

            finishing = asyncio.create_task(finish())
        await finishing
        for pending in (reader, partial_reader):
            status, headers, _ = await read_answer(pending)
            assert (status, headers["connection"]) == (200, "close")


async def test_a_stop_does_not_wait_forever():
    """After the time for it, the connections that remain are cut."""
    async with contextlib.AsyncExitStack() as clients:
        async with front(HeldBackend(), limits=HttpLimits(drain_s=0.01)) as service:
            reader, writer = await clients.enter_async_context(connection(service.port))
            writer.write(REQUEST)
            await eventually(lambda: service.backend.calls)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_backend_that_stops_answers_503():
    """A future that the backend cancels is no client's hang-up."""
    async with front(HeldBackend()) as service, connection(service.port) as (reader, writer):
        writer.write(REQUEST)
        await eventually(lambda: service.backend.calls)
        service.backend.calls[0][1].cancel()
        status, headers, body = await read_answer(reader)
        assert (status, headers["retry-after"]) == (503, "1")
        assert "send the request again" in error_of(body)


async def test_errors_of_the_backend_keep_their_status():
    """A `CallError` is answered as it is; any other error is the gateway's own."""
    async with front(HeldBackend()) as service, connection(service.port) as (reader, writer):
        for index, (error, status) in enumerate(
            [(CallError(504, "too late"), 504), (ZeroDivisionError(), 500)]
        ):
            writer.write(REQUEST)
            await eventually(lambda index=index: len(service.backend.calls) == index + 1)
            service.backend.calls[index][1].set_exception(error)
            assert (await read_answer(reader))[0] == status


async def test_tls(tmp_path):
    """The same requests over TLS, long bodies and pipelined ones, too."""
    files = Authority(tmp_path).server("gateway", ("gateway",))
    certificates = Certificates(files.certificate, files.key)
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    async with gateway(tls=certificates.context) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port, ssl=trust)
        arrays = [rows_of(number, 1, 100_000 if number % 2 else 4) for number in range(6)]
        for array in arrays:
            body, headers = infer_body(array)
            writer.write(request_bytes("POST", INFER, body, headers))
        for array in arrays:
            status, headers, answer = await read_answer(reader)
            assert status == 200
            assert np.array_equal(infer_outputs(headers, answer)["y"], 2 * array)
        writer.close()
        await writer.wait_closed()
