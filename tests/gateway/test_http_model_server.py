"""The HTTP client of model servers: connections, faults, time-outs."""

import asyncio
import contextlib
import gc

import numpy as np
import pytest

from scheduler.gateway.http.exchange import ServerConnection
from scheduler.gateway.http.model_server import HttpModelServer
from scheduler.gateway.model_server import ModelServerError
from scheduler.oip.batch import RowRange
from scheduler.oip.infer_request import parse_request
from tests.gateway.harness import eventually
from tests.gateway.messages import infer_body, rows_of
from workbench.cluster.model_server import PlayedModelServer
from workbench.cluster.process import free_port


@contextlib.asynccontextmanager
async def client_of(played=None, **options):
    played = played or PlayedModelServer(slots=8)
    async with played.serving():
        client = HttpModelServer("127.0.0.1", played.port, binary=True, **options)
        yield client, played
        await client.close()


def ranges_of(*arrays):
    requests = [parse_request(body, headers[0][1]) for body, headers in map(infer_body, arrays)]
    return [RowRange(request, 0, request.rows) for request in requests]


def array_of(outputs, name="y"):
    tensor = next(tensor for tensor in outputs if tensor.name == name)
    content = b"".join(part.content for part in tensor.parts)
    return np.frombuffer(content, np.float32).reshape(tensor.shape)


async def infer(client, number=1, rows=2, width=4, **options):
    """Send one request; check its answer."""
    array = rows_of(number, rows, width)
    outputs = await client.infer("m", ranges_of(array), timeout_ms=None, **options)
    assert np.array_equal(array_of(outputs), 2 * array)


@pytest.mark.parametrize("width", [4, 100_000])
async def test_a_batch_is_one_request_over_a_kept_connection(width):
    """Rows of several requests leave together; the next batch takes the same connection."""
    arrays = [rows_of(number, number, width) for number in (1, 2, 3)]
    async with client_of() as (client, played):
        for _ in range(3):
            outputs = await client.infer("m", ranges_of(*arrays), timeout_ms=1e6)
            assert np.array_equal(array_of(outputs), 2 * np.concatenate(arrays))
        assert [run.rows for run in played.runs] == [6, 6, 6]
        assert played.runs[0].document["parameters"]["timeout"] == 10**9
        assert played.connections == 1


async def test_concurrent_batches_have_a_connection_each():
    """Connections are reused, and never shared at the same time."""
    async with client_of(PlayedModelServer(run_ms=20, slots=4)) as (client, played):
        for _ in range(2):
            await asyncio.gather(*(infer(client, number) for number in range(4)))
        assert played.connections == 4


async def test_connections_that_the_server_closes_leave_no_memory():
    """Each has a buffer, and after a rush few of them are used again."""
    async with client_of(PlayedModelServer(run_ms=20, slots=8)) as (client, played):
        await asyncio.gather(*(infer(client, number) for number in range(8)))
        played.cut_connections()
        await eventually(lambda: not open_connections())


def open_connections():
    """Return the connections that something refers to."""
    gc.collect()
    return [item for item in gc.get_objects() if isinstance(item, ServerConnection)]


async def test_ready_and_metadata():
    """Without a server, a model is not ready, and metadata is an error."""
    async with client_of() as (client, played):
        assert await client.ready("m")
        assert (await client.metadata("m"))["name"] == "m"
        played.ready = False
        assert not await client.ready("m")
    lost = HttpModelServer("127.0.0.1", free_port(), binary=True)
    assert not await lost.ready("m")
    with pytest.raises(ModelServerError) as caught:
        await lost.metadata("m")
    assert caught.value.retryable


class PlayedTorchServe(PlayedModelServer):
    """A server that has one route besides inference, and an error message of its own."""

    health, status = 200, 404

    async def _exchange(self, reader, writer):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = self.health if lines.startswith("GET /ping ") else self.status
        body = b'{"code": 404, "type": "NotFound", "message": "there is no such route"}'
        head = f"HTTP/1.1 {status} Text\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return True


async def test_a_server_without_readiness_of_models_is_ready_while_it_is_healthy():
    """TorchServe answers 404; its own health stands for the model's, and its errors are read."""
    async with client_of(PlayedTorchServe()) as (client, played):
        assert await client.ready("m")
        played.health = 500
        assert not await client.ready("m")
        with pytest.raises(ModelServerError, match=r"answered 404: there is no such route$"):
            await client.metadata("m")


@pytest.mark.parametrize("status", [204, 302, 599])
async def test_a_status_that_is_no_known_error_is_a_bad_answer(status):
    """Clients could not read an answer with it, or get none."""
    async with client_of(PlayedTorchServe()) as (client, played):
        played.status = status
        with pytest.raises(ModelServerError, match=f"answered {status}: ") as caught:
            await infer(client)
        assert caught.value.status == 502


@pytest.mark.parametrize(
    ("fault", "status", "retryable", "words"),
    [
        ("cut", 503, True, "before it answered"),
        ("cut-answer", 503, True, "within its answer"),
        ("rows", 502, False, "1 rows instead of 2"),
        ("error", 500, False, "the played model failed"),
        ("garbage", 502, False, "not by HTTP/1.1"),
    ],
)
async def test_faults_are_errors_that_say_whether_another_server_may_answer(
    fault, status, retryable, words
):
    """Only a batch whose answer is absent or cut is retryable, and the next one is served."""
    async with client_of(PlayedModelServer(fault=fault, every=1)) as (client, played):
        with pytest.raises(ModelServerError, match=words) as caught:
            await infer(client)
        assert (caught.value.status, caught.value.retryable) == (status, retryable)
        assert not caught.value.is_unreachable
        assert len(played.runs) == 1
        played.fault = "none"
        await infer(client)


async def test_a_kept_connection_that_was_closed_is_replaced_once():
    """A server that closes idle connections costs no error, and a batch runs once."""
    async with client_of(PlayedModelServer(keep_alive=False)) as (client, played):
        for number in range(5):
            await infer(client, number)
        assert len(played.runs) == 5


async def test_a_batch_is_sent_again_only_after_a_kept_connection_was_cut():
    """The second attempt takes a new connection; if it is cut, too, the error is retryable.

    A cut answer is no sign of a stale connection: the batch ran.
    """
    async with client_of(PlayedModelServer()) as (client, played):
        await infer(client)
        played.fault = "cut"
        with pytest.raises(ModelServerError) as caught:
            await infer(client)
        assert caught.value.retryable
        assert len(played.runs) == 3
        played.fault = "cut-answer"
        with pytest.raises(ModelServerError) as caught:
            await infer(client)
        assert caught.value.retryable
        assert len(played.runs) == 4


async def test_a_late_answer_is_an_error_and_its_connection_is_closed():
    """The answer of a late batch must not be taken for that of the next one."""
    async with client_of(PlayedModelServer(fault="late", every=2)) as (client, played):
        await infer(client, 1)
        with pytest.raises(ModelServerError, match="has not answered within 50 ms") as caught:
            await client.infer("m", ranges_of(rows_of(2, 1)), timeout_ms=50)
        assert (caught.value.status, caught.value.retryable) == (504, False)
        await infer(client, 3)
        assert played.connections == 2


async def test_a_cancelled_batch_closes_its_connection():
    """The server sees that nobody waits for the answer."""
    async with client_of(PlayedModelServer(fault="late")) as (client, played):
        task = asyncio.create_task(infer(client))
        await eventually(lambda: played.runs)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        played.fault = "none"
        await infer(client)
        assert played.connections == 2


async def test_close_ends_the_batches_in_flight():
    """They end with an error that another pod's server may make good."""
    async with client_of(PlayedModelServer(fault="late")) as (client, played):
        task = asyncio.create_task(infer(client))
        await eventually(lambda: played.runs)
        await client.close()
        with pytest.raises(ModelServerError) as caught:
            await task
        assert caught.value.retryable


async def test_idle_connections_are_closed_on_demand():
    """A batch in flight keeps its connection, and the next one connects again."""
    async with client_of(PlayedModelServer(fault="late", every=2)) as (client, played):
        await infer(client)
        task = asyncio.create_task(infer(client))
        await eventually(lambda: len(played.runs) == 2)
        client.close_idle()
        assert not task.done()
        task.cancel()
        played.fault = "none"
        await infer(client)
        client.close_idle()
        await infer(client)
        assert played.connections == 3


async def test_an_answer_beyond_the_limit_is_refused():
    """It is not received to its end."""
    async with client_of(answer_bytes_max=10_000) as (client, _):
        with pytest.raises(ModelServerError, match="the limit is 10,000") as caught:
            await infer(client, width=100_000)
        assert caught.value.status == 502
        await infer(client)


async def test_a_server_that_refuses_connections_is_retryable_elsewhere():
    """The message has the address and the reason."""
    port = free_port()
    client = HttpModelServer("127.0.0.1", port, binary=True)
    with pytest.raises(ModelServerError, match=f"127.0.0.1:{port}: .*refused") as caught:
        await infer(client)
    assert (caught.value.status, caught.value.retryable) == (503, True)
    assert caught.value.is_unreachable
