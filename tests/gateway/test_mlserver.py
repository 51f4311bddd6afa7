"""The gateway in front of real MLServers over gRPC, with tritonclient as its client."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.grpc_front import GrpcFront
from scheduler.gateway.grpc_model_server import GrpcModelServer
from scheduler.gateway.grpc_server import GrpcEndpoint, GrpcLimits, serving_grpc
from scheduler.gateway.model_server import ModelServerError
from scheduler.oip.batch import RowRange, split
from scheduler.oip.grpc_request import parse_grpc_request
from scheduler.oip.grpc_response import parse_grpc_response
from tests.gateway import runtime_bed
from tests.oip import grpc_twin
from tests.testbed.mlserver_process import MODEL, MlServer, needs_mlserver

pytestmark = [pytest.mark.slow, needs_mlserver]
INFER = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two MLServers with the same network."""
    processes = [MlServer(tmp_path_factory.mktemp("mlserver")) for _ in range(2)]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            process.stop()


class Gateway:
    """Runtime and gRPC front over pods that are MLServers.

    Attributes:
        records: reports of the runtime.
        client: tritonclient, connected to the front.
        channel: a channel to the front.
    """

    def __init__(self):
        self._bed = runtime_bed.ProcessBed(MODEL)
        self.records, self.runtime = self._bed.records, self._bed.runtime

    def add_pod(self, process):
        self._bed.add_pod("grpc", process.grpc_port)


@asynccontextmanager
async def gateway_over(processes):
    gateway = Gateway()
    for process in processes:
        gateway.add_pod(process)
    async with serving_grpc(
        GrpcFront(gateway.runtime).methods(),
        GrpcEndpoint("127.0.0.1", 0, "ESG_TEST"),
        memory=BodyMemory(2**26),
        limits=GrpcLimits(drain_s=0.0),
    ) as port:
        address = f"127.0.0.1:{port}"
        async with (
            triton.InferenceServerClient(address) as gateway.client,
            grpc.aio.insecure_channel(address) as gateway.channel,
        ):
            yield gateway
    await gateway.runtime.close()


def arrays(first, rows):
    """Return rows with images of their own and the numbers from ``first``."""
    images = np.random.default_rng(first).normal(size=(rows, 3, 8, 8)).astype(np.float32)
    return images, np.arange(first, first + rows).reshape(rows, 1)


def inputs(first, rows):
    images, numbers = arrays(first, rows)
    return [
        triton.InferInput("image", images.shape, "FP32").set_data_from_numpy(images),
        triton.InferInput("number", numbers.shape, "INT64").set_data_from_numpy(numbers),
    ]


def message(first, rows, **options):
    images, numbers = arrays(first, rows)
    tensors = [("image", "FP32", images), ("number", "INT64", numbers)]
    return grpc_twin.message(grpc_twin.Request, tensors, **options).SerializeToString()


def ranges(first, rows, **options):
    request = parse_grpc_request(message(first, rows, **options))
    return [RowRange(request, 0, rows)]


def decoded(outputs):
    dtypes = {"FP32": np.float32, "INT64": np.int64}
    return {
        output.name: np.frombuffer(
            b"".join(part.content for part in output.parts), dtypes[output.datatype.name]
        ).reshape(output.shape)
        for output in outputs
    }


@asynccontextmanager
async def client_of(process):
    client = GrpcModelServer("127.0.0.1", process.grpc_port)
    try:
        yield client
    finally:
        await client.close()


async def alone(process, first, rows):
    """Return the scores of rows that share no batch with others."""
    async with client_of(process) as client:
        return decoded(await client.infer(MODEL, ranges(first, rows), timeout_ms=None))["scores"]


async def check(answer, process, first, rows):
    assert answer.as_numpy("same_number").tolist() == arrays(first, rows)[1].tolist()
    scores = await alone(process, first, rows)
    np.testing.assert_allclose(answer.as_numpy("scores"), scores, rtol=1e-4, atol=1e-5)


async def test_each_client_receives_its_own_rows(servers):
    """48 clients with 1 to 3 rows wait for two busy pods, and share batches of at most 8 rows."""
    calls = [(100 * number, 1 + number % 3) for number in range(48)]
    async with gateway_over(servers) as gateway:
        infer = gateway.client.infer
        answers = await asyncio.gather(
            *(infer("vision", inputs(9, 1), parameters={"pause_s": 1}) for _ in servers),
            *(infer("vision", inputs(*call)) for call in calls),
        )
        for call, answer in zip(calls, answers[2:], strict=True):
            await check(answer, servers[0], *call)
        batches = [batch.rows for batch in gateway.records.batches]
        assert sum(batches) == 2 + sum(rows for _, rows in calls)
        assert len(batches) < len(calls)
        assert max(batches) <= 8


async def test_typed_contents_equal_raw_contents(servers):
    async with gateway_over(servers) as gateway:
        infer = gateway.channel.unary_unary(INFER)
        raw, typed = [
            await infer(message(7, 2, typed=typed, model_name="vision")) for typed in (False, True)
        ]
        assert raw == typed


async def test_a_typed_answer_of_the_server_equals_a_raw_one(servers):
    """MLServer answers a typed request with typed contents."""
    answers = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{servers[0].grpc_port}") as channel:
        for typed in (False, True):
            body = message(3, 2, typed=typed, model_name=MODEL)
            answer = grpc_twin.Answer.FromString(await channel.unary_unary(INFER)(body))
            assert bool(answer.raw_output_contents) != typed
            outputs = parse_grpc_response(answer.SerializeToString(), rows=2)
            answers.append(decoded(outputs))
    raw, typed = answers
    assert all(np.array_equal(raw[name], typed[name]) for name in raw)


async def test_metadata_and_readiness_are_those_of_the_server(servers):
    async with gateway_over(servers) as gateway:
        assert await gateway.client.is_model_ready("vision")
        metadata = await gateway.client.get_model_metadata("vision")
        assert {(tensor.name, *tensor.shape) for tensor in metadata.inputs} == {
            ("image", -1, 3, 8, 8),
            ("number", -1, 1),
        }


async def test_bad_input_ends_its_own_call_only(servers):
    """The network refuses an image of another shape, and requests without an input."""
    async with gateway_over(servers) as gateway:
        bad = triton.InferInput("image", (1, 3, 8, 7), "FP32")
        bad.set_data_from_numpy(np.zeros((1, 3, 8, 7), np.float32))
        good = [(10 * number, 2) for number in range(10)]
        refusals = [
            gateway.client.infer("vision", [bad, inputs(0, 1)[1]]),
            gateway.client.infer("vision", inputs(0, 1)[:1]),
        ]
        results = await asyncio.gather(
            *(gateway.client.infer("vision", inputs(*call)) for call in good),
            *refusals,
            return_exceptions=True,
        )
        for call, answer in zip(good, results[: len(good)], strict=True):
            await check(answer, servers[0], *call)
        for error in results[len(good) :]:
            assert isinstance(error, InferenceServerException)
            assert "image" in error.message() or "number" in error.message()


async def test_a_killed_server_gives_its_batch_back(servers):
    """The error is retryable, and the server is used again after its restart."""
    process = servers[1]
    async with client_of(process) as client:
        pause = ranges(0, 1, parameters={"pause_s": 600})
        call = asyncio.ensure_future(client.infer(MODEL, pause, timeout_ms=None))
        await client.infer(MODEL, ranges(0, 1), timeout_ms=None)  # it has the first one, too
        process.process.kill()
        with pytest.raises(ModelServerError) as caught:
            await call
        assert (caught.value.status, caught.value.retryable) == (503, True)
        assert not await client.ready(MODEL)
        await asyncio.to_thread(process.start)
        await client._channel.channel_ready()
        outputs = decoded(await client.infer(MODEL, ranges(5, 1), timeout_ms=None))
        assert outputs["same_number"].tolist() == [[5]]


async def test_calls_of_a_killed_server_move_to_the_other(servers):
    """All clients receive their own rows while one of two pods dies."""
    calls = [(100 * number, 1 + number % 3) for number in range(120)]
    async with gateway_over(servers) as gateway:
        pending = [
            asyncio.ensure_future(gateway.client.infer("vision", inputs(*call))) for call in calls
        ]
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        servers[1].process.kill()
        try:
            for call, answer in zip(calls, await asyncio.gather(*pending), strict=True):
                await check(answer, servers[0], *call)
        finally:
            await asyncio.to_thread(servers[1].start)


async def test_joined_rows_are_split_by_client(servers):
    """The client of model servers alone: three requests in one batch."""
    async with client_of(servers[0]) as client:
        batch = [item for first, rows in ((0, 1), (10, 2), (20, 3)) for item in ranges(first, rows)]
        outputs = await client.infer(MODEL, batch, timeout_ms=60_000)
        numbers = [decoded(own)["same_number"].ravel().tolist() for own in split(batch, outputs)]
        assert numbers == [[0], [10, 11], [20, 21, 22]]
