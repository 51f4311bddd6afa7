"""The client of model servers by gRPC, with a played server on loopback."""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest

from scheduler.gateway.grpc.model_server import GrpcModelServer
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.model_servers import model_server
from scheduler.oip.batch import RowRange, split
from scheduler.oip.grpc_request import parse_grpc_request
from tests.gateway.grpc_player import GrpcPlayer
from tests.oip import grpc_twin
from workbench.cluster.process import free_port


def rows_of(*values):
    """Return the rows of one client."""
    array = np.array(values, np.float32).reshape(-1, 1)
    message = grpc_twin.message(grpc_twin.Request, [("x", "FP32", array)])
    request = parse_grpc_request(message.SerializeToString())
    return RowRange(request, 0, request.rows)


def values_of(tensors):
    contents = b"".join(part.content for part in tensors[0].parts)
    return np.frombuffer(contents, np.float32).tolist()


@asynccontextmanager
async def client_of(port, **settings):
    client = GrpcModelServer("127.0.0.1", port, **settings)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def played():
    player = GrpcPlayer()
    async with player.serve() as port, client_of(port) as client:
        yield player, client


async def error_of(client, *, timeout_ms=None):
    with pytest.raises(ModelServerError) as caught:
        await client.infer("model", [rows_of(1)], timeout_ms=timeout_ms)
    return caught.value


async def test_each_client_receives_its_own_rows():
    """Two clients in one batch; the server sees one request, the time left and the trace."""
    async with played() as (player, client):
        ranges = [rows_of(1, 2), rows_of(3)]
        trace = (b"traceparent", b"00-ab-cd-01")
        outputs = await client.infer("model", ranges, timeout_ms=5000.5, headers=(trace,))
        assert [values_of(own) for own in split(ranges, outputs)] == [[2, 4], [6]]
        (request,) = player.requests
        assert request.model_name == "model"
        assert list(request.inputs[0].shape) == [3, 1]
        assert request.parameters["timeout"].int64_param == 5_000_500
        assert player.metadata["traceparent"] == "00-ab-cd-01"


async def test_many_requests_share_a_connection():
    async with played() as (_, client):
        batches = [client.infer("model", [rows_of(value)], timeout_ms=None) for value in range(50)]
        answers = await asyncio.gather(*batches)
        assert [values_of(answer) for answer in answers] == [[2 * value] for value in range(50)]


async def test_a_header_that_grpc_cannot_carry_is_left_out():
    async with played() as (player, client):
        headers = ((b"tracestate", b"\xff"), (b"traceparent", b"00"))
        await client.infer("model", [rows_of(1)], timeout_ms=None, headers=headers)
        assert "tracestate" not in player.metadata
        assert player.metadata["traceparent"] == "00"


async def test_no_server_is_retryable():
    async with client_of(free_port()) as client:
        error = await error_of(client)
        assert (error.status, error.retryable) == (503, True)
        assert not await client.ready("model")


async def test_a_connection_that_ends_before_the_answer_is_retryable():
    async def close(_reader, writer):
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server, client_of(server.sockets[0].getsockname()[1]) as client:
        error = await error_of(client)
        assert (error.status, error.retryable) == (503, True)


async def test_a_server_that_stops_gives_its_batch_back():
    async with played() as (player, client):
        player.infer = player.hang
        async with player.serve() as port, client_of(port) as stopped:
            attempt = asyncio.ensure_future(error_of(stopped))
            await player.started.wait()
        error = await attempt
        assert (error.status, error.retryable, error.is_unreachable) == (503, True, False)
        player.infer = player.double
        assert values_of(await client.infer("model", [rows_of(1)], timeout_ms=None)) == [2]


async def test_a_restarted_server_is_used_again():
    """The container restarts under the pod's address."""
    player, port = GrpcPlayer(), free_port()
    async with client_of(port) as client:
        error = await error_of(client)
        assert (error.retryable, error.is_unreachable) == (True, True)
        async with player.serve(port):
            await client._channel.channel_ready()
            assert values_of(await client.infer("model", [rows_of(1)], timeout_ms=None)) == [2]


@pytest.mark.parametrize(
    ("code", "status", "retryable"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 400, False),
        (grpc.StatusCode.NOT_FOUND, 404, False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429, False),
        (grpc.StatusCode.UNAVAILABLE, 503, True),
        (grpc.StatusCode.INTERNAL, 500, False),
        (grpc.StatusCode.DATA_LOSS, 500, False),
    ],
)
async def test_an_error_of_the_model_has_its_status_and_text(code, status, retryable):
    async def fail(_body, context):
        await context.abort(code, "the model's reason")

    async with played() as (player, client):
        player.infer = fail
        error = await error_of(client)
        assert (error.status, error.retryable) == (status, retryable)
        assert not error.is_unreachable
        assert str(error).endswith(f"answered {code.name}: the model's reason")


async def test_a_late_answer_is_an_error_that_no_retry_helps():
    async with played() as (player, client):
        player.infer = player.hang
        error = await error_of(client, timeout_ms=50)
        assert (error.status, error.retryable) == (504, False)
        assert str(error).endswith("has not answered within 50 ms")
        if player.started.is_set():  # on a busy machine the call may have ended before that
            await player.cancelled.wait()


async def test_a_cancelled_call_ends_at_the_server():
    async with played() as (player, client):
        player.infer = player.hang
        call = asyncio.ensure_future(client.infer("model", [rows_of(1)], timeout_ms=None))
        await player.started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await player.cancelled.wait()


async def test_calls_in_flight_end_when_the_client_closes():
    async with played() as (player, client):
        player.infer = player.hang
        attempt = asyncio.ensure_future(error_of(client))
        await player.started.wait()
        await client.close()
        assert (await attempt).retryable
        assert (await error_of(client)).retryable


@pytest.mark.parametrize("answer", [b"", b"<html>", b"\xff"])
async def test_an_invalid_answer_is_an_error_of_the_server(answer):
    async def invalid(_body, _context):
        return answer

    async with played() as (player, client):
        player.infer = invalid
        error = await error_of(client)
        assert (error.status, error.retryable) == (502, False)
        assert "the model server's answer is invalid" in str(error)


async def test_an_answer_above_the_limit_is_refused():
    player = GrpcPlayer()
    async with player.serve() as port, client_of(port, answer_bytes_max=10) as client:
        error = await error_of(client)
        assert (error.status, error.retryable) == (502, False)
        assert "larger than max" in str(error)


async def test_a_batch_above_the_servers_limit_is_its_operators_error():
    """Servers take 4 MiB unless they are told otherwise; no client can help that."""
    async with played() as (_, client):
        with pytest.raises(
            ModelServerError, match="take messages of the size of a whole"
        ) as caught:
            await client.infer("model", [rows_of(*range(1_100_000))], timeout_ms=None)
        assert (caught.value.status, caught.value.retryable) == (502, False)


async def test_readiness_and_metadata():
    async with played() as (_, client):
        ready = [await client.ready(name) for name in ("model", "loading", "unknown")]
        assert ready == [True, False, False]
        assert await client.metadata("model") == {
            "name": "model",
            "versions": ["1"],
            "platform": "played",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
        }


async def test_the_factory_knows_grpc():
    client = model_server("grpc", "::1", 8001)
    assert isinstance(client, GrpcModelServer)
    assert client.binary
    await client.close()


@pytest.mark.slow
def test_grpc_is_loaded_where_it_is_used():
    """A gateway without gRPC servers does not pay for the library."""
    code = "import sys, scheduler.gateway.model_servers; sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
