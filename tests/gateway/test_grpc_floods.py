"""Clients of the gRPC port that send what no client needs to send, or do not go on."""

import asyncio
import struct

import pytest
from h2.errors import ErrorCodes

from scheduler.gateway import listening
from scheduler.gateway.access import TokenAccess
from scheduler.gateway.calls import CallError
from scheduler.gateway.grpc.frame_guard import PREFACE
from scheduler.gateway.grpc.limits import GrpcLimits
from tests.gateway.harness import eventually
from tests.gateway.http2_client import http2_client
from tests.gateway.test_access import Reviews
from tests.gateway.test_grpc_front import chain, message, tensors
from tests.oip import grpc_twin

KIB, MIB = 2**10, 2**20
INVALID, DEADLINE, EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 3, 4, 8, 12, 14, 16


@pytest.fixture
def _frequent_sweep(monkeypatch):
    monkeypatch.setattr(listening, "SWEEP_S", 0.01)


async def answers(gateway, value=1):
    """Check that another client is answered."""
    answer = await gateway.client.infer("double", tensors(value))
    assert answer.as_numpy("y").tolist() == [[2 * value]]


async def closes(gateway, data):
    """Send bytes on a new connection; return what came back until its end."""
    reader, writer = await asyncio.open_connection(*gateway.address.split(":"))
    writer.write(data)
    async with asyncio.timeout(60):
        received = await reader.read()
    writer.close()
    return received


def frame(kind, payload=b"", *, flags=0, stream=0, length=None):
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + payload


SETTINGS = frame(4)


async def test_memory_is_reserved_before_a_message_comes():
    """A call whose message does not fit is refused when its length is known."""
    async with chain(memory_bytes=MIB) as gateway, http2_client(gateway.address) as client:
        accepted = [client.call(announced=400 * KIB, body=b"x") for _ in range(2)]
        refused = client.call(announced=400 * KIB, body=b"x")
        await eventually(lambda: client.status(refused))
        status, text = client.status(refused)
        assert (status, "does not fit" in text) == (EXHAUSTED, True)
        assert client.headers[refused]["grpc-retry-pushback-ms"] == "1000"
        assert client.resets[refused] == ErrorCodes.NO_ERROR
        assert gateway.memory.held_bytes == 800 * KIB
        client.http2.reset_stream(accepted[0])
        client.flush()
        await eventually(lambda: gateway.memory.held_bytes == 400 * KIB)
        await answers(gateway)


async def test_a_message_that_is_too_large_is_refused_by_its_length():
    async with chain() as gateway, http2_client(gateway.address) as client:
        number = client.call(announced=2**32 - 1)
        await eventually(lambda: client.status(number))
        assert client.status(number) == (
            EXHAUSTED,
            "the message has 4,294,967,295 bytes, and the limit is 67,108,864; send fewer rows",
        )
        assert gateway.memory.held_bytes == 0


@pytest.mark.usefixtures("_frequent_sweep")
@pytest.mark.parametrize("announced", [None, 500 * KIB])
async def test_a_message_that_does_not_end_is_refused_after_its_time(announced):
    """No byte of it, or all but the last one."""
    limits = GrpcLimits(head_s=1.0, message_s=1.0, drain_s=0.0)
    async with chain(limits=limits) as gateway, http2_client(gateway.address) as client:
        body = b"" if announced is None else bytes(40 * KIB)
        number = client.call(announced=announced, body=body)
        await eventually(lambda: client.status(number))
        assert client.status(number) == (
            DEADLINE,
            "the message was not complete in time; send it faster",
        )
        assert gateway.memory.held_bytes == 0


@pytest.mark.usefixtures("_frequent_sweep")
async def test_idle_and_silent_connections_end():
    limits = GrpcLimits(head_s=0.1, idle_s=0.1, drain_s=0.0)
    async with chain(limits=limits) as gateway:
        assert await closes(gateway, b"")
        async with http2_client(gateway.address) as client:
            await client.is_closed.wait()
            assert client.gone == (ErrorCodes.NO_ERROR, 0)
        await eventually(lambda: not gateway.connections.connections)


async def test_a_call_without_a_token_is_refused_before_its_message():
    reviews = Reviews()
    access = TokenAccess(reviews)
    async with chain(access=access) as gateway, http2_client(gateway.address) as client:
        number = client.call()
        await eventually(lambda: client.status(number))
        assert client.status(number)[0] == UNAUTHENTICATED
        assert client.resets[number] == ErrorCodes.NO_ERROR


async def test_the_message_of_a_refused_caller_is_not_received_to_its_end():
    """The review of the token begins with the head."""
    reviews = Reviews()
    reviews.gate.clear()
    access = TokenAccess(reviews)
    async with chain(access=access) as gateway, http2_client(gateway.address) as client:
        number = client.call(announced=500 * KIB, authorization="Bearer carol's")
        await eventually(lambda: gateway.memory.held_bytes == 500 * KIB and reviews.reviewed)
        reviews.gate.set()
        await eventually(lambda: client.status(number))
        assert client.status(number)[0] == UNAUTHENTICATED
        assert gateway.memory.held_bytes == 0


async def test_calls_are_bounded():
    """Those of one connection, which a client counts itself, and those of all together."""
    limits = GrpcLimits(streams=3, calls=5, drain_s=0.0)
    async with (
        chain(limits=limits) as gateway,
        http2_client(gateway.address) as first,
        http2_client(gateway.address) as second,
    ):
        for client in (first, first, first, second, second):
            client.call(announced=100)
        await eventually(lambda: gateway.memory.held_bytes == 500)
        number = second.call()
        await eventually(lambda: second.status(number))
        assert second.status(number)[0] == EXHAUSTED
        assert first.http2.remote_settings.max_concurrent_streams == 3
        first.http2.remote_settings.max_concurrent_streams = 100
        first.http2.remote_settings.acknowledge()
        first.call()
        await first.is_closed.wait()
        await eventually(lambda: gateway.memory.held_bytes == 200)


async def test_connections_are_bounded():
    limits = GrpcLimits(connections=1, drain_s=0.0)
    async with chain(limits=limits) as gateway, http2_client(gateway.address) as client:
        assert await closes(gateway, b"")
        number = client.call(announced=len(message(1)), body=message(1), ends=True)
        await eventually(lambda: number in client.ended)
        assert client.status(number) == (0, "")


BAD_CONNECTIONS = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n",
    "another preface": PREFACE[:-1] + b"x",
    "a frame of 16 MiB": PREFACE + SETTINGS + frame(0, stream=1, length=2**24 - 1),
    "headers without end": PREFACE
    + SETTINGS
    + frame(1, bytes(16_000), stream=1)
    + frame(9, bytes(16_000), stream=1) * 2,
    "many empty parts of headers": PREFACE
    + SETTINGS
    + frame(1, stream=1)
    + frame(9, stream=1) * 20_000,
    "many settings": PREFACE
    + frame(4, b"".join(struct.pack(">HI", 1000 + number, 1) for number in range(100))),
    "many changes of settings": PREFACE + SETTINGS * 20_000,
    "many pings": PREFACE + SETTINGS + frame(6, bytes(8)) * 20_000,
    "many windows": PREFACE + SETTINGS + frame(8, struct.pack(">I", 1)) * 20_000,
    "many unknown frames": PREFACE + SETTINGS + frame(200) * 20_000,
    "headers that are none": PREFACE + SETTINGS + frame(1, b"\xff" * 10, flags=4, stream=1),
    "data of no call": PREFACE + SETTINGS + frame(0, b"x", stream=1),
}


@pytest.mark.parametrize("data", BAD_CONNECTIONS.values(), ids=BAD_CONNECTIONS)
async def test_what_no_client_sends_ends_its_connection(data):
    """At once, and with nothing left; others are answered."""
    async with chain() as gateway:
        await answers(gateway)
        await closes(gateway, data)
        await eventually(lambda: len(gateway.connections.connections) == 1)
        await answers(gateway)


@pytest.mark.slow
async def test_calls_that_are_reset_at_once_leave_nothing():
    """Whole calls or heads alone; in the end the client is told to calm down."""
    async with chain() as gateway, http2_client(gateway.address) as client:
        body = message(1)
        for number in range(20_000):
            if client.is_closed.is_set() or client.gone:
                break
            call = client.call(
                announced=len(body) if number % 2 else None, body=body * (number % 2)
            )
            client.http2.reset_stream(call)
            client.flush()
            if not number % 100:
                await client.writer.drain()
                await asyncio.sleep(0)
        await client.is_closed.wait()
        assert client.gone[0] == ErrorCodes.ENHANCE_YOUR_CALM
        assert gateway.connections.calls == 0
        await eventually(lambda: gateway.memory.held_bytes == 0)
        await answers(gateway)


@pytest.mark.slow
async def test_many_calls_over_one_connection():
    """A client that has answers to its calls is no flood."""
    async with chain() as gateway:
        for _ in range(40):
            await asyncio.gather(*(answers(gateway, value) for value in range(50)))
        assert len(gateway.connections.connections) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("_frequent_sweep")
async def test_a_client_that_takes_no_answer_is_reset_after_its_time():
    """Its answer counts as held memory until then."""
    limits = GrpcLimits(write_s=1.0, drain_s=0.0)
    async with (
        chain(limits=limits) as gateway,
        http2_client(gateway.address, window_bytes=10) as client,
    ):
        body = message(*range(2_000))
        number = client.call(announced=len(body))
        client.takes_answers = False
        client.send(number, body, ends=True)
        await eventually(lambda: client.bodies.get(number))
        assert gateway.memory.held_bytes > 0
        await eventually(lambda: number in client.resets)
        assert client.resets[number] == ErrorCodes.CANCEL
        assert gateway.memory.held_bytes == 0


async def test_a_long_answer_goes_through_a_small_window():
    async with chain() as gateway, http2_client(gateway.address, window_bytes=1000) as client:
        body = message(*range(2_000))
        number = client.call(announced=len(body))
        client.send(number, body, ends=True)
        await eventually(lambda: number in client.ended)
        assert client.status(number) == (0, "")
        answer = grpc_twin.Answer.FromString(client.bodies[number][5:])
        assert grpc_twin.tensors_of(answer)["y"][1][:, 0].tolist() == list(range(0, 4_000, 2))


@pytest.mark.parametrize(
    ("prefix", "rest", "code", "words"),
    [
        (b"\1\0\0\0\1", b"x", UNIMPLEMENTED, "send it without compression"),
        (b"\0\0\0\0\2", b"x", INVALID, "no complete message"),
        (b"\0\0", b"", INVALID, "no complete message"),
        (b"\0\0\0\0\1", b"xy", INVALID, "send one message"),
        (b"\0\0\0\0\1", b"x\0\0\0\0\1x", INVALID, "send one message"),
    ],
)
async def test_what_is_not_one_message_is_refused(prefix, rest, code, words):
    async with chain() as gateway, http2_client(gateway.address) as client:
        number = client.call()
        client.send(number, prefix + rest, ends=True)
        await eventually(lambda: client.status(number))
        status, text = client.status(number)
        assert (status, words in text) == (code, True)
        await answers(gateway)


async def test_a_message_may_come_byte_by_byte():
    async with chain() as gateway, http2_client(gateway.address) as client:
        body = message(3)
        number = client.call()
        data = struct.pack(">BI", 0, len(body)) + body
        for index in range(len(data)):
            client.send(number, data[index : index + 1])
            await asyncio.sleep(0)
        client.send(number, b"", ends=True)
        await eventually(lambda: number in client.ended)
        answer = grpc_twin.Answer.FromString(client.bodies[number][5:])
        assert grpc_twin.tensors_of(answer)["y"][1].tolist() == [[6]]
        assert gateway.connections.calls == 0


@pytest.mark.parametrize(
    ("metadata", "status", "code"),
    [
        ({"path": "/inference.GRPCInferenceService/Other"}, "200", UNIMPLEMENTED),
        ({"grpc-timeout": "soon"}, "200", INVALID),
        ({"grpc-timeout": "123456789S"}, "200", INVALID),
        ({"content-type": "application/json"}, "415", None),
        ({":method": "GET"}, "415", None),
    ],
)
async def test_the_head_of_a_call_is_checked(metadata, status, code):
    async with chain() as gateway, http2_client(gateway.address) as client:
        number = client.call(**metadata)
        await eventually(lambda: number in client.ended)
        assert client.headers[number][":status"] == status
        assert code == (client.status(number) and client.status(number)[0])
        await answers(gateway)


async def test_a_refusal_of_a_call_that_is_gone_ends_nothing():
    """Head, message and reset come in one read, so that the refusal comes too late."""
    async with chain() as gateway, http2_client(gateway.address) as client:
        gateway.backend.refusal = CallError(404, "there is none")
        for announced in (None, 10, 2**32 - 1):
            number = client.http2.get_next_available_stream_id()
            headers = [(":method", "POST"), (":scheme", "http"), (":authority", "g")]
            path = "/none" if announced is None else "/inference.GRPCInferenceService/ModelInfer"
            headers += [(":path", path), ("content-type", "application/grpc")]
            client.http2.send_headers(number, headers)
            if announced is not None:
                client.http2.send_data(number, struct.pack(">BI", 0, announced))
            client.http2.reset_stream(number)
        client.flush()
        gateway.backend.refusal = None
        body = message(1)
        number = client.call(announced=len(body), body=body, ends=True)
        await eventually(lambda: number in client.ended)
        assert client.status(number) == (0, "")


async def test_a_call_during_the_stop_is_sent_elsewhere():
    """The server says which calls it answers; a client repeats the others without harm."""
    async with chain(limits=GrpcLimits(drain_s=60.0)) as gateway:
        gateway.player.infer = gateway.player.hang
        async with http2_client(gateway.address) as client:
            body = message(1)
            answered = client.call(announced=len(body), body=body, ends=True)
            await gateway.player.started.wait()
            [connection] = gateway.connections.connections
            connection.drain()
            late = client.call(announced=len(body), body=body, ends=True)
            await eventually(lambda: connection._http2.highest_inbound_stream_id == late)
            await eventually(lambda: client.gone)
            assert client.gone == (ErrorCodes.NO_ERROR, answered)
            assert gateway.connections.calls == 1
            assert len(gateway.backend.calls) == 1
