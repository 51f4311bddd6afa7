"""The gateway in front of real model servers, with tritonclient as its client."""

import asyncio
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
import tritonclient.http.aio as triton_http
from structlog.testing import capture_logs
from tritonclient.utils import InferenceServerException

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.grpc.front import GrpcFront
from scheduler.gateway.grpc.limits import GrpcLimits
from scheduler.gateway.grpc.server import serving_grpc
from scheduler.gateway.http.front import HttpFront
from scheduler.gateway.http.limits import HttpLimits
from scheduler.gateway.http.server import serving_http
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.scaling.warm_up import warm_up
from scheduler.gateway.serving.runtime import Runtime
from scheduler.oip.batch import RowRange, split
from scheduler.oip.grpc_request import parse_grpc_request
from scheduler.oip.grpc_response import parse_grpc_response
from scheduler.server.sockets import listen
from tests.gateway import runtime_bed
from tests.gateway.harness import eventually
from tests.oip import grpc_twin
from tests.testbed.kserve_process import KServe, needs_kserve
from tests.testbed.mlserver_process import MlServer, needs_mlserver
from tests.testbed.model_server_process import MODEL, ModelServerProcess
from tests.testbed.torchserve_process import TorchServe, needs_torchserve
from tests.testbed.triton_process import ECHO, Triton, needs_triton

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
INFER = "/inference.GRPCInferenceService/ModelInfer"


class Pod(NamedTuple):
    """A model server and the protocol that the gateway speaks to it."""

    server: ModelServerProcess
    protocol: str

    @property
    def port(self):
        return self.server.grpc_port if self.protocol == "grpc" else self.server.http_port

    @asynccontextmanager
    async def client(self):
        client = model_server(self.protocol, "127.0.0.1", self.port)
        try:
            yield client
        finally:
            await client.close()


def pods_of(server, protocol, mark):
    return pytest.param((server, protocol), marks=mark, id=f"{server.__name__}-{protocol}")


MLSERVER = [pods_of(MlServer, "grpc", needs_mlserver)]
KSERVE = [pods_of(KServe, protocol, needs_kserve) for protocol in ("grpc", "http-json")]
TRITON = [pods_of(Triton, protocol, needs_triton) for protocol in ("grpc", "http-binary")]
WITH_METADATA = [*MLSERVER, *KSERVE, *TRITON]
TORCHSERVE = [
    pods_of(TorchServe, protocol, needs_torchserve) for protocol in ("http-binary", "http-json")
]


@pytest.fixture(scope="module", params=[*WITH_METADATA, *TORCHSERVE])
def pods(request, tmp_path_factory):
    """Two pods with the same model."""
    server, protocol = request.param
    processes = [server(tmp_path_factory.mktemp("server")) for _ in range(2)]
    try:
        for process in processes:
            process.start()
        yield [Pod(process, protocol) for process in processes]
    finally:
        for process in processes:
            process.stop()


class Gateway(NamedTuple):
    """Runtime and fronts over pods.

    Attributes:
        runtime: the runtime.
        records: reports of the runtime.
        pods: names of the pods.
        client: tritonclient over gRPC.
        http_client: tritonclient over HTTP.
        channel: a channel to the gRPC front.
    """

    runtime: Runtime
    records: runtime_bed.Records
    pods: list[str]
    client: triton.InferenceServerClient
    http_client: triton_http.InferenceServerClient
    channel: grpc.aio.Channel


@asynccontextmanager
async def gateway_over(pods, model=MODEL):
    bed = runtime_bed.ProcessBed(model)
    names = [bed.add_pod(pod.protocol, pod.port) for pod in pods]
    memory, listener = BodyMemory(2**26), listen(("127.0.0.1", 0), "ESG_TEST")
    grpc_listener = listen(("127.0.0.1", 0), "ESG_TEST")
    http_address, grpc_address = (
        f"127.0.0.1:{item.getsockname()[1]}" for item in (listener, grpc_listener)
    )
    try:
        async with (
            serving_http(
                HttpFront(bed.runtime), listener, memory=memory, limits=HttpLimits(drain_s=0.0)
            ),
            serving_grpc(
                GrpcFront(bed.runtime),
                grpc_listener,
                memory=memory,
                limits=GrpcLimits(drain_s=0.0),
            ),
            triton.InferenceServerClient(grpc_address) as client,
            triton_http.InferenceServerClient(http_address) as http_client,
            grpc.aio.insecure_channel(grpc_address) as channel,
        ):
            yield Gateway(bed.runtime, bed.records, names, client, http_client, channel)
    finally:
        await bed.runtime.close()


def arrays(first, rows):
    """Return rows with images of their own and the numbers from ``first``."""
    images = np.random.default_rng(abs(first)).normal(size=(rows, 3, 8, 8)).astype(np.float32)
    return images, np.arange(first, first + rows).reshape(rows, 1)


def inputs(first, rows, client=triton):
    images, numbers = arrays(first, rows)
    return [
        client.InferInput("image", images.shape, "FP32").set_data_from_numpy(images),
        client.InferInput("number", numbers.shape, "INT64").set_data_from_numpy(numbers),
    ]


def message(first, rows, **options):
    images, numbers = arrays(first, rows)
    tensors = [("image", "FP32", images), ("number", "INT64", numbers)]
    return grpc_twin.message(grpc_twin.Request, tensors, **options).SerializeToString()


def ranges(pod, first, rows, **options):
    request = parse_grpc_request(message(first, rows, **options))
    return [RowRange(request.in_form(binary=pod.protocol != "http-json"), 0, rows)]


def decoded(outputs):
    dtypes = {"FP32": np.float32, "INT64": np.int64}
    return {
        output.name: np.frombuffer(
            b"".join(part.content for part in output.to_binary().parts),
            dtypes[output.datatype.name],
        ).reshape(output.shape)
        for output in outputs
    }


async def alone(pod, first, rows):
    """Return the scores of rows that share no batch with others."""
    async with pod.client() as client:
        outputs = await client.infer(MODEL, ranges(pod, first, rows), timeout_ms=None)
        return decoded(outputs)["scores"]


async def check(answer, pod, first, rows):
    assert answer.as_numpy("same_number").tolist() == arrays(first, rows)[1].tolist()
    scores = await alone(pod, first, rows)
    np.testing.assert_allclose(answer.as_numpy("scores"), scores, rtol=1e-4, atol=1e-5)


async def has_paused(pod, pause_s):
    """Wait until the server has a request that asked for a pause."""
    await eventually(lambda: f"pausing for {pause_s} s" in pod.server.process.log.read_text())


async def busy(gateway, pods, pause_s):
    """Keep all pods busy; return the calls that do."""
    calls = [
        asyncio.ensure_future(
            gateway.client.infer("vision", inputs(9, 1), parameters={"pause_s": pause_s})
        )
        for _ in pods
    ]
    for pod in pods:
        await has_paused(pod, pause_s)
    return calls


async def test_each_client_receives_its_own_rows(pods):
    """48 clients over HTTP and gRPC wait for two busy pods, and share batches of at most 8 rows."""
    calls = [(100 * number, 1 + number % 3) for number in range(48)]
    async with gateway_over(pods) as gateway:
        pauses = await busy(gateway, pods, 1)
        answers = await asyncio.gather(
            *(gateway.client.infer("vision", inputs(*call)) for call in calls[::2]),
            *(
                gateway.http_client.infer("vision", inputs(*call, client=triton_http))
                for call in calls[1::2]
            ),
        )
        await asyncio.gather(*pauses)
        for call, answer in zip(calls[::2] + calls[1::2], answers, strict=True):
            await check(answer, pods[0], *call)
        batches = [batch.rows for batch in gateway.records.batches]
        assert sum(batches) == len(pods) + sum(rows for _, rows in calls)
        assert len(batches) < len(calls)
        assert max(batches) <= 8


async def test_a_request_of_many_rows_runs_in_several_batches(pods):
    async with gateway_over(pods) as gateway:
        answer = await gateway.client.infer("vision", inputs(0, 20))
        assert answer.as_numpy("same_number").ravel().tolist() == list(range(20))
        assert sorted(batch.rows for batch in gateway.records.batches) == [4, 8, 8]


async def test_typed_contents_equal_raw_contents(pods):
    async with gateway_over(pods) as gateway:
        infer = gateway.channel.unary_unary(INFER)
        raw, typed = [
            await infer(message(7, 2, typed=typed, model_name="vision")) for typed in (False, True)
        ]
        assert raw == typed


@pytest.mark.parametrize("pods", MLSERVER, indirect=True)
async def test_a_typed_answer_of_the_server_equals_a_raw_one(pods):
    """MLServer answers a typed request with typed contents."""
    answers = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{pods[0].port}") as channel:
        for typed in (False, True):
            body = message(3, 2, typed=typed, model_name=MODEL)
            answer = grpc_twin.Answer.FromString(await channel.unary_unary(INFER)(body))
            assert bool(answer.raw_output_contents) != typed
            outputs = parse_grpc_response(answer.SerializeToString(), rows=2)
            answers.append(decoded(outputs))
    raw, typed = answers
    assert all(np.array_equal(raw[name], typed[name]) for name in raw)


@pytest.mark.parametrize("pods", TRITON, indirect=True)
async def test_rows_of_half_floats_and_strings_are_joined_and_split(pods):
    """Strings differ in length, and JSON cannot carry half floats."""

    def tensors(number):
        half = np.full((1 + number % 3, 2), number, np.float16)
        return half, np.array([[b"%d" % number * number] for _ in half], dtype=object)

    def infer(client, half, text):
        values = [
            triton_http.InferInput("half", half.shape, "FP16").set_data_from_numpy(half),
            triton_http.InferInput("text", text.shape, "BYTES").set_data_from_numpy(text),
        ]
        return client.infer("vision", values)

    rows = [tensors(number) for number in range(24)]
    async with gateway_over(pods, ECHO) as gateway:
        answers = await asyncio.gather(*(infer(gateway.http_client, *row) for row in rows))
        assert len(gateway.records.batches) < len(rows)
    for (half, text), answer in zip(rows, answers, strict=True):
        assert np.array_equal(answer.as_numpy("half"), half)
        assert np.array_equal(answer.as_numpy("text"), text)


@pytest.mark.parametrize("pods", WITH_METADATA, indirect=True)
async def test_metadata_and_readiness_are_those_of_the_server(pods):
    async with gateway_over(pods) as gateway:
        assert await gateway.client.is_model_ready("vision")
        assert await gateway.http_client.is_model_ready("vision")
        metadata = await gateway.client.get_model_metadata("vision")
        assert {(tensor.name, *tensor.shape) for tensor in metadata.inputs} == {
            ("image", -1, 3, 8, 8),
            ("number", -1, 1),
        }


@pytest.mark.parametrize("pods", TORCHSERVE, indirect=True)
async def test_a_server_without_metadata_serves(pods):
    """A pod from demand gets no first batch, and the log says so; clients get the 404."""
    with capture_logs() as logs:
        async with pods[0].client() as client:
            await warm_up(client, MODEL, 8, pod="n/p")
    assert [entry["event"] for entry in logs] == ["warm-up batch refused"]
    async with gateway_over(pods) as gateway:
        assert await gateway.client.is_model_ready("vision")
        with pytest.raises(InferenceServerException, match="Requested resource is not found"):
            await gateway.client.get_model_metadata("vision")


async def test_bad_input_ends_its_own_call_only(pods):
    """The model refuses an image of another shape, and requests without an input."""
    async with gateway_over(pods) as gateway:
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
            await check(answer, pods[0], *call)
        for error in results[len(good) :]:
            assert isinstance(error, InferenceServerException)
            assert "image" in error.message() or "number" in error.message()
            assert "127.0.0.1" not in error.message()


@pytest.mark.parametrize("pods", WITH_METADATA, indirect=True)
async def test_a_request_is_compared_with_the_metadata_of_the_server(pods):
    """The client gets the reason over HTTP and gRPC, and the servers no batch."""
    async with gateway_over(pods) as gateway:
        await eventually(lambda: gateway.runtime._probes.signatures)
        for client, module in ((gateway.client, triton), (gateway.http_client, triton_http)):
            wide = module.InferInput("image", (1, 3, 8, 7), "FP32")
            wide.set_data_from_numpy(np.zeros((1, 3, 8, 7), np.float32))
            with pytest.raises(InferenceServerException) as caught:
                await client.infer("vision", [wide, inputs(0, 1, module)[1]])
            assert caught.value.status() in {"400", "StatusCode.INVALID_ARGUMENT"}
            text = "input 'image' has shape [1,3,8,7]; classifier takes [-1,3,8,8]"
            assert caught.value.message() == text
        assert gateway.records.refused == [400, 400]
        assert (gateway.records.calls, gateway.records.batches) == ([], [])


@pytest.mark.parametrize("pods", WITH_METADATA, indirect=True)
async def test_a_request_without_an_input_is_the_clients_mistake(pods):
    """Whatever status the server has for it, the SLO does not count it."""
    async with gateway_over(pods) as gateway:
        await eventually(lambda: gateway.runtime._probes.signatures)
        with pytest.raises(InferenceServerException) as caught:
            await gateway.client.infer("vision", inputs(0, 1)[:1])
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        assert "number" in caught.value.message()
        assert (gateway.records.calls, gateway.records.refused) == ([], [400])


async def test_a_row_that_the_model_refuses_ends_its_own_call_only(pods):
    """The batch that it shared with others fails, and they run again without it."""
    good = [(10 * number, 1) for number in range(16)]
    async with gateway_over(pods) as gateway:
        with capture_logs() as logs:
            pauses = await busy(gateway, pods, 2)
            error, *answers = await asyncio.gather(
                gateway.client.infer("vision", inputs(-5, 1)),
                *(gateway.client.infer("vision", inputs(*call)) for call in good),
                return_exceptions=True,
            )
            await asyncio.gather(*pauses)
        for call, answer in zip(good, answers, strict=True):
            await check(answer, pods[0], *call)
        assert "a number is negative" in error.message()
        assert any(entry["event"] == "batch failed" and entry["rows"] > 1 for entry in logs)


async def test_a_killed_server_gives_its_batch_back(pods):
    """The error is retryable, and the server is used again after its restart."""
    pod = pods[1]
    async with pod.client() as client:
        pause = ranges(pod, 0, 1, parameters={"pause_s": 60})
        call = asyncio.ensure_future(client.infer(MODEL, pause, timeout_ms=None))
        await has_paused(pod, 60)
        pod.server.kill()
        with pytest.raises(ModelServerError) as caught:
            await call
        assert (caught.value.status, caught.value.retryable) == (503, True)
        assert not await client.ready(MODEL)
        with pytest.raises(ModelServerError) as caught:
            await client.infer(MODEL, ranges(pod, 0, 1), timeout_ms=None)
        assert caught.value.is_unreachable
        await asyncio.to_thread(pod.server.start)
        async with asyncio.timeout(60):
            while not await client.ready(MODEL):  # noqa: ASYNC110 - it waits to connect again
                await asyncio.sleep(0.01)
        outputs = decoded(await client.infer(MODEL, ranges(pod, 5, 1), timeout_ms=None))
        assert outputs["same_number"].tolist() == [[5]]


async def test_calls_of_a_killed_server_move_to_the_other(pods):
    """All clients receive their own rows while one of two pods dies."""
    calls = [(100 * number, 1 + number % 3) for number in range(120)]
    async with gateway_over(pods) as gateway:
        pending = [
            asyncio.ensure_future(gateway.client.infer("vision", inputs(*call))) for call in calls
        ]
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        pods[1].server.kill()
        try:
            for call, answer in zip(calls, await asyncio.gather(*pending), strict=True):
                await check(answer, pods[0], *call)
        finally:
            await asyncio.to_thread(pods[1].server.start)


@pytest.mark.parametrize("pods", TRITON, indirect=True)
async def test_a_pod_that_is_deleted_ends_its_batch_and_then_itself(pods):
    """At SIGTERM, Triton answers what it has, and waits until its connections are closed."""
    pod = pods[1]
    async with gateway_over([pod]) as gateway:
        [call] = await busy(gateway, [pod], 3)
        try:
            gateway.runtime.drain_pod(gateway.pods[0])
            await asyncio.to_thread(pod.server.process.stop, grace_s=60)
            await check(await call, pods[0], 9, 1)
            assert "Exit timeout expired" not in pod.server.process.log.read_text()
        finally:
            await asyncio.to_thread(pod.server.start)


async def test_joined_rows_are_split_by_client(pods):
    """The client of model servers alone: three requests in one batch."""
    pod = pods[0]
    async with pod.client() as client:
        calls = [(0, 1), (10, 2), (20, 3)]
        batch = [item for call in calls for item in ranges(pod, *call)]
        outputs = await client.infer(MODEL, batch, timeout_ms=60_000)
        numbers = [decoded(own)["same_number"].ravel().tolist() for own in split(batch, outputs)]
        assert numbers == [[0], [10, 11], [20, 21, 22]]
