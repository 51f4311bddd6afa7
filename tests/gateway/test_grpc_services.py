"""Health checking and server reflection on the gateway's gRPC port, by clients of gRPC itself."""

import asyncio

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from scheduler.gateway.grpc.limits import GrpcLimits
from scheduler.gateway.grpc.reflection import DESCRIPTORS
from scheduler.gateway.grpc.stream import framed
from tests.gateway.harness import eventually
from tests.gateway.http2_client import http2_client
from tests.gateway.test_grpc_front import chain, refusal_of, tensors
from tools.descriptors import descriptor_set

INFERENCE = "inference.GRPCInferenceService"
PATH = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
VERSIONS = ("v1", "v1alpha")


def reflection(gateway, version="v1"):
    """Begin a call of reflection; its messages are equal in both versions."""
    return gateway.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()


async def ask(call, **question):
    """Ask one thing, and wait for the answer before the call goes on."""
    request = reflection_pb2.ServerReflectionRequest(**question)
    await call.write(request)
    answer = await call.read()
    assert answer.original_request == request
    return answer


async def test_health_follows_readiness():
    """The service of the empty name is the gateway; others are those that it has."""
    async with chain() as gateway:
        stub = health_pb2_grpc.HealthStub(gateway.channel)
        for service in ("", INFERENCE, "grpc.health.v1.Health"):
            request = health_pb2.HealthCheckRequest(service=service)
            assert (await stub.Check(request)).status == SERVING
            gateway.backend.is_ready = False
            assert (await stub.Check(request)).status == NOT_SERVING
            gateway.backend.is_ready = True
        error = await refusal_of(stub.Check(health_pb2.HealthCheckRequest(service="unknown")))
        assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watch_of_the_health_is_not_implemented():
    """Clients that get this status take the server as healthy, as the protocol says."""
    async with chain() as gateway:
        stub = health_pb2_grpc.HealthStub(gateway.channel)
        error = await refusal_of(stub.Watch(health_pb2.HealthCheckRequest()).read())
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("version", VERSIONS)
async def test_one_call_of_reflection_has_many_questions(version):
    """Grpcurl asks for the services, then for the files of what it needs, in one call."""
    async with chain() as gateway:
        call = reflection(gateway, version)
        listed = await ask(call, list_services="")
        assert {service.name for service in listed.list_services_response.service} == {
            INFERENCE,
            "grpc.health.v1.Health",
            *(f"grpc.reflection.{version}.ServerReflection" for version in VERSIONS),
        }
        files = {
            bytes(answer.file_descriptor_response.file_descriptor_proto[0])
            for symbol in (
                INFERENCE,
                f"{INFERENCE}.ModelInfer",
                "inference.ModelInferRequest",
                "inference.ModelInferRequest.InferInputTensor",
            )
            if (answer := await ask(call, file_containing_symbol=symbol))
        }
        by_name = await ask(call, file_by_filename="grpc_service.proto")
        assert files == {bytes(by_name.file_descriptor_response.file_descriptor_proto[0])}
        unknown = await ask(call, file_containing_symbol="inference.Unknown")
        assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_client_that_knows_reflection_alone_calls_a_workflow():
    """The descriptors are enough to write a request and to read its answer."""
    async with chain() as gateway:

        def messages():
            with grpc.insecure_channel(gateway.address) as channel:
                pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
                method = pool.FindServiceByName(INFERENCE).methods_by_name["ModelInfer"]
                return GetMessageClass(method.input_type), GetMessageClass(method.output_type)

        request_class, answer_class = await asyncio.to_thread(messages)
        request = request_class(model_name="double")
        request.inputs.add(name="x", datatype="FP32", shape=[1, 1]).contents.fp32_contents.append(3)
        infer = gateway.channel.unary_unary(f"/{INFERENCE}/ModelInfer")
        answer = answer_class.FromString(await infer(request.SerializeToString()))
        assert answer.outputs[0].name == "y"


def test_the_descriptors_are_those_of_the_packages():
    """`make documents` writes the file anew."""
    assert DESCRIPTORS.read_bytes() == descriptor_set().SerializeToString(deterministic=True)


async def test_a_question_that_is_no_message_ends_its_call_only():
    async with chain() as gateway:
        call = gateway.channel.stream_stream(PATH)()
        await call.write(b"\xff")
        assert (await refusal_of(call.read())).code() is grpc.StatusCode.INVALID_ARGUMENT
        call = gateway.channel.stream_stream(PATH)()
        await call.write(bytes(5000))
        assert (await refusal_of(call.read())).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await gateway.client.infer("double", tensors(1))).as_numpy("y").tolist() == [[2]]


def question(symbol):
    """Return a message with its prefix."""
    body = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
    return framed(body.SerializeToString())


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
async def test_questions_come_in_parts_of_any_size(size):
    """A message may begin where another one ends, and answers keep their order."""
    names = [INFERENCE, "unknown", "grpc.health.v1.Health", ""] * 3
    data = b"".join(map(question, names))
    async with chain() as gateway, http2_client(gateway.address, window_bytes=100_000) as client:
        number = client.call(path=PATH)
        for begin in range(0, len(data), size):
            client.send(number, data[begin : begin + size], ends=begin + size >= len(data))
        await eventually(lambda: number in client.ended)
        assert client.status(number) == (0, "")
        body, answers = client.bodies[number], []
        while body:
            end = 5 + int.from_bytes(body[1:5], "big")
            answers.append(reflection_pb2.ServerReflectionResponse.FromString(body[5:end]))
            body = body[end:]
        assert [item.original_request.file_containing_symbol for item in answers] == names


async def test_a_client_that_takes_no_answer_gets_no_further_one():
    """The gateway stores one answer of a call at most."""
    async with chain() as gateway, http2_client(gateway.address, window_bytes=10) as client:
        number = client.call(path=PATH)
        client.takes_answers = False
        for _ in range(3):
            client.send(number, question(INFERENCE))
        await eventually(lambda: client.status(number))
        status, text = client.status(number)
        assert (status, "receive it first" in text) == (8, True)


async def test_a_drain_ends_calls_of_reflection():
    """A client that leaves its call open does not delay the end of the gateway."""
    async with chain(limits=GrpcLimits(drain_s=20.0)) as gateway:
        call = reflection(gateway)
        await ask(call, list_services="")
        for connection in list(gateway.connections.connections):
            connection.drain()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_call_without_a_question_for_long_ends():
    async with chain(limits=GrpcLimits(message_s=1.0, drain_s=0.0)) as gateway:
        call = reflection(gateway)
        await ask(call, list_services="")
        assert (await refusal_of(call.read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED
