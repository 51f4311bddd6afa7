"""The gRPC front with tritonclient as its client, and a played model server behind the gateway."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from scheduler import __version__
from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.calls import CallError
from scheduler.gateway.grpc.front import GrpcFront
from scheduler.gateway.grpc.limits import GrpcLimits
from scheduler.gateway.grpc.model_server import GrpcModelServer
from scheduler.gateway.grpc.server import ALPN, serving_grpc
from scheduler.server.certificates import Certificates
from scheduler.server.sockets import listen
from tests.gateway.backend import backend_of
from tests.gateway.grpc_player import GrpcPlayer
from tests.gateway.harness import eventually
from tests.oip import grpc_twin
from tests.testbed.pki import Authority

INFER = "/inference.GRPCInferenceService/ModelInfer"


class Chain:
    """A gateway between clients and a played model server.

    Attributes:
        client: tritonclient, connected to the front.
        channel: a channel to the front.
        backend: what answers calls.
        player: the model server.
        memory: the bound on bodies.
        refused: statuses of requests that came to no backend.
        address: host and port of the front.
        connections: connections of the front's clients.
    """


@asynccontextmanager
async def chain(*, limits=None, memory_bytes=2**20, tls=None, access=None, **backend_options):
    """Serve; at the end, no memory is held."""
    result = Chain()
    result.refused = []
    result.player, result.memory = GrpcPlayer(), BodyMemory(memory_bytes, result.refused.append)
    limits = limits or GrpcLimits(drain_s=0.0)
    listener = listen(("127.0.0.1", 0), "ESG_GRPC_PORT")
    result.address = f"127.0.0.1:{listener.getsockname()[1]}"
    async with (
        result.player.serve() as server_port,
        backend_of(GrpcModelServer("127.0.0.1", server_port), **backend_options) as result.backend,
        serving_grpc(
            GrpcFront(result.backend, access=access, on_refused=result.refused.append),
            listener,
            memory=result.memory,
            limits=limits,
            tls=tls,
        ) as result.connections,
        triton.InferenceServerClient(result.address) as result.client,
        grpc.aio.insecure_channel(result.address) as result.channel,
    ):
        yield result
    await eventually(lambda: result.memory.held_bytes == 0)


def tensors(*values):
    """Return the inputs of one client, a row for each value."""
    array = np.array(values, np.float32).reshape(-1, 1)
    tensor = triton.InferInput("x", array.shape, "FP32")
    return [tensor.set_data_from_numpy(array)]


def message(*values, model="double", **options):
    array = np.array(values, np.float32).reshape(-1, 1)
    tensor = ("x", "FP32", array)
    request = grpc_twin.message(grpc_twin.Request, [tensor], model_name=model, **options)
    return request.SerializeToString()


async def refusal_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_each_of_many_clients_receives_its_own_rows():
    """Concurrent requests of 1 to 3 rows share batches of at most 8 rows."""
    async with chain() as gateway:
        rows = [[10.0 * client + row for row in range(client % 3 + 1)] for client in range(48)]
        answers = await asyncio.gather(
            *(gateway.client.infer("double", tensors(*values)) for values in rows)
        )
        for values, answer in zip(rows, answers, strict=True):
            assert answer.as_numpy("y").tolist() == [[2 * value] for value in values]
        batches = [request.inputs[0].shape[0] for request in gateway.player.requests]
        assert sum(batches) == sum(map(len, rows))
        assert max(batches) <= 8
        assert len(batches) < len(rows)


async def test_typed_contents_equal_raw_contents():
    async with chain() as gateway:
        infer = gateway.channel.unary_unary(INFER)
        raw, typed = [await infer(message(1, 2, typed=typed, id="7")) for typed in (False, True)]
        assert raw == typed
        answer = grpc_twin.Answer.FromString(raw)
        assert (answer.id, answer.model_name) == ("7", "double")
        assert grpc_twin.tensors_of(answer)["y"][1].tolist() == [[2], [4]]


async def test_times_are_trailing_metadata():
    async with chain() as gateway:
        call = gateway.channel.unary_unary(INFER)(message(1, 2))
        await call
        assert dict(await call.trailing_metadata()) == {
            "esg-queue-ms": "1.0",
            "esg-execute-ms": "2.0",
            "esg-batch": "2",
            "esg-cold-start": "false",
        }


@pytest.mark.parametrize(
    ("timeout_s", "parameter_us", "range_ms"),
    [
        (None, None, None),
        (30, None, (20_000, 31_000)),
        (None, 5000, (5, 5)),
        (30, 5000, (5, 5)),
        (30, 60_000_000, (20_000, 31_000)),
    ],
)
async def test_the_smaller_limit_counts(timeout_s, parameter_us, range_ms):
    """That of the call, which gRPC rounds up, or the request's parameter."""
    async with chain() as gateway:
        parameters = {"timeout": parameter_us} if parameter_us else {}
        body = message(1, parameters=parameters)
        await gateway.channel.unary_unary(INFER)(body, timeout=timeout_s)
        (call,) = gateway.backend.calls
        if range_ms is None:
            assert call.timeout_ms is None
        else:
            assert range_ms[0] <= call.timeout_ms <= range_ms[1]


async def test_the_trace_is_passed_on():
    async with chain() as gateway:
        metadata = (("traceparent", "00-1"), ("authorization", "secret"))
        await gateway.channel.unary_unary(INFER)(message(1), metadata=metadata)
        assert gateway.player.metadata["traceparent"] == "00-1"
        assert "authorization" not in gateway.player.metadata


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("double", ("default", "double", None)),
        ("vision/double", ("vision", "double", None)),
        ("double/stages/first", ("default", "double", "first")),
        ("vision/double/stages/first", ("vision", "double", "first")),
    ],
)
async def test_a_models_name_has_namespace_workflow_and_stage(model, expected):
    async with chain() as gateway:
        await gateway.channel.unary_unary(INFER)(message(1, model=model))
        (call,) = gateway.backend.calls
        assert (call.namespace, call.workflow, call.stage) == expected


@pytest.mark.parametrize(
    "model", ["", "/", "a/", "/double", "double/stages/", "a/b/c", "a/b/c/d/e"]
)
async def test_other_names_are_not_found(model):
    async with chain() as gateway:
        error = await refusal_of(gateway.channel.unary_unary(INFER)(message(1, model=model)))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert f"there is no model '{model}'; use WORKFLOW" in error.details()


async def test_the_version_of_the_metadata_answers():
    async with chain() as gateway:
        client = gateway.client
        [version] = (await client.get_model_metadata("double", "1")).versions
        assert await client.is_model_ready("double", version)
        answer = await client.infer("double", tensors(1), model_version=version)
        assert answer.as_numpy("y").tolist() == [[2]]


async def test_another_version_is_not_found():
    async with chain() as gateway:
        body = message(1, model_version="2")
        error = await refusal_of(gateway.channel.unary_unary(INFER)(body))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert "'double' has version 1 alone" in error.details()


async def test_server_and_models_are_described():
    async with chain() as gateway:
        client = gateway.client
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("double")
        metadata = await client.get_server_metadata()
        assert (metadata.name, metadata.version) == ("esg-scheduler", __version__)
        metadata = await client.get_model_metadata("default/double")
        assert [(tensor.name, list(tensor.shape)) for tensor in metadata.inputs] == [
            ("x", [-1, -1])
        ]
        gateway.backend.is_ready = False
        assert await client.is_server_live()
        assert not await client.is_server_ready()
        assert not await client.is_model_ready("double")
        with pytest.raises(InferenceServerException, match="no workflow 'unknown'"):
            await client.is_model_ready("unknown")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, grpc.StatusCode.INVALID_ARGUMENT),
        (404, grpc.StatusCode.NOT_FOUND),
        (413, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (502, grpc.StatusCode.INTERNAL),
        (503, grpc.StatusCode.UNAVAILABLE),
        (504, grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)
async def test_a_refusal_has_its_status_and_text(status, code):
    """It comes before the tensors are read."""
    async with chain() as gateway:
        gateway.backend.refusal = CallError(status, "the reason; what to do", 2.5)
        body = grpc_twin.message(grpc_twin.Request, [], model_name="double").SerializeToString()
        error = await refusal_of(gateway.channel.unary_unary(INFER)(body))
        assert (error.code(), error.details()) == (code, "the reason; what to do")
        assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "2500"


async def test_a_long_reason_in_any_script_arrives_truncated():
    async with chain() as gateway:
        gateway.backend.refusal = CallError(400, "😀" * 10_000)
        error = await refusal_of(gateway.channel.unary_unary(INFER)(message(1)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "😀" * 600


@pytest.mark.parametrize("body", [b"", b"\xff", b"<html>", b"\x0a\x06double"])
async def test_bad_input_gets_a_sentence_and_stops_nothing(body):
    async with chain() as gateway:
        error = await refusal_of(gateway.channel.unary_unary(INFER)(body))
        assert error.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
        assert "; " in error.details()
        assert gateway.refused in ([400], [404])
        answer = await gateway.client.infer("double", tensors(1))
        assert answer.as_numpy("y").tolist() == [[2]]


async def test_a_call_without_a_message_is_refused():
    async with chain() as gateway:
        error = await refusal_of(gateway.channel.stream_unary(INFER)(iter([])))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "the call has no complete message; send one"


async def test_a_message_above_the_limit_is_refused(logged):
    async with chain(limits=GrpcLimits(message_bytes=1000, drain_s=0.0)) as gateway:
        error = await refusal_of(gateway.channel.unary_unary(INFER)(message(*range(1000))))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "the limit is 1,000; send fewer rows" in error.details()
        assert gateway.refused == [413]
        assert not logged


async def test_a_message_above_the_memory_is_refused():
    async with chain(memory_bytes=1000) as gateway:
        error = await refusal_of(gateway.channel.unary_unary(INFER)(message(*range(1000))))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "does not fit" in error.details()
        assert gateway.refused == [429]


async def test_messages_are_read_when_there_is_memory():
    async with chain(memory_bytes=1000) as gateway:
        gateway.memory.reserve(900)
        waiting = asyncio.ensure_future(gateway.client.infer("double", tensors(1)))
        await eventually(lambda: gateway.memory._waiting)
        assert not gateway.backend.calls
        gateway.memory.release(900)
        assert (await waiting).as_numpy("y").tolist() == [[2]]


async def test_a_client_that_hangs_up_cancels_its_call():
    async with chain() as gateway:
        gateway.player.infer = gateway.player.hang
        call = gateway.channel.unary_unary(INFER)(message(1))
        await gateway.player.started.wait()
        call.cancel()
        await eventually(lambda: gateway.backend.cancelled)


async def test_a_deadline_of_the_client_ends_its_call():
    async with chain() as gateway:
        gateway.player.infer = gateway.player.hang
        await gateway.channel.channel_ready()  # else a busy machine takes the time to connect
        error = await refusal_of(gateway.channel.unary_unary(INFER)(message(1), timeout=1.0))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: gateway.backend.cancelled)


async def test_a_call_that_the_gateway_cancels_may_be_sent_again():
    async with chain() as gateway:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        gateway.backend.submit = lambda call: future
        error = await refusal_of(gateway.channel.unary_unary(INFER)(message(1)))
        assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_error_of_the_gateway_is_logged(logged):
    async with chain() as gateway:
        gateway.backend.submit = lambda call: 1 / 0
        error = await refusal_of(gateway.channel.unary_unary(INFER)(message(1)))
        assert error.code() is grpc.StatusCode.INTERNAL
        assert [entry["log_level"] for entry in logged] == ["error"]


async def refused(address):
    """Wait until an address refuses connections."""
    with suppress(ConnectionError):
        while True:
            _, writer = await asyncio.open_connection(*address.split(":"))
            writer.close()


async def test_a_server_that_stops_answers_the_calls_in_flight():
    stack, release = AsyncExitStack(), asyncio.Event()
    gateway = await stack.enter_async_context(chain(limits=GrpcLimits(drain_s=60.0)))

    async def wait(body, context):
        gateway.player.started.set()
        await release.wait()
        return await gateway.player.double(body, context)

    gateway.player.infer = wait
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        call = channel.unary_unary(INFER)(message(1))
        await gateway.player.started.wait()
        stop = asyncio.create_task(stack.aclose())
        await refused(gateway.address)
        release.set()
        answer = grpc_twin.Answer.FromString(await call)
        assert grpc_twin.tensors_of(answer)["y"][1].tolist() == [[2]]
        await stop


async def test_a_renewed_certificate_is_served_to_new_connections(tmp_path):
    """Half a renewal changes nothing; the files are renewed one after the other."""
    old, new = (Authority(tmp_path / name) for name in ("old", "new"))
    files, renewed = (authority.server("gateway", ("gateway",)) for authority in (old, new))

    async def infer(authority):
        trust = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
        async with grpc.aio.secure_channel(gateway.address, trust) as channel:
            return await channel.unary_unary(INFER)(message(1))

    certificates = Certificates(files.certificate, files.key)
    certificates.context.set_alpn_protocols(ALPN)
    async with chain(tls=certificates.context) as gateway:
        answer = await infer(old)
        files.certificate.write_bytes(renewed.certificate.read_bytes())
        assert not certificates.renew()
        assert await infer(old) == answer
        files.key.write_bytes(renewed.key.read_bytes())
        assert certificates.renew()
        assert await infer(new) == answer
        error = await refusal_of(infer(old))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
