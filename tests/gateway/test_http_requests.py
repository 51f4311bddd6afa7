"""Requests over HTTP: routes, forms of tensors, headers, connections."""

import asyncio
import json

import numpy as np
import pytest

from scheduler.gateway.calls import CallError
from scheduler.gateway.http.front import ForwardedCalls, RequestRules
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


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("upstream_binary", [True, False])
@pytest.mark.parametrize("width", [4, 20_000])
async def test_every_form_of_a_request_is_answered_in_its_form(binary, upstream_binary, width):
    """Clients and model servers may use different forms; long bodies bypass the parser."""
    array = rows_of(3, 2, width)
    async with gateway(binary=upstream_binary) as service:
        body, headers = infer_body(array, binary=binary)
        status, answer_headers, answer = await service.request("POST", INFER, body, headers)
    assert status == 200
    assert ("inference-header-content-length" in answer_headers) == binary
    assert np.array_equal(infer_outputs(answer_headers, answer)["y"], 2 * array)


async def test_an_answer_tells_its_times_and_its_batch():
    """The headers of an answer have queue and execution time, the batch and a cold start."""
    async with gateway() as service:
        body, headers = infer_body(rows_of(1, 3))
        _, answer_headers, _ = await service.request("POST", INFER, body, headers)
    assert answer_headers["esg-queue-ms"] == "1.0"
    assert answer_headers["esg-execute-ms"] == "2.0"
    assert answer_headers["esg-batch"] == "3"
    assert answer_headers["esg-cold-start"] == "false"


async def test_a_request_larger_than_a_batch_is_answered_as_one():
    """Its rows come back in their order."""
    array = rows_of(5, 21)
    async with gateway(rows_max=8) as service:
        body, headers = infer_body(array)
        _, answer_headers, answer = await service.request("POST", INFER, body, headers)
    assert np.array_equal(infer_outputs(answer_headers, answer)["y"], 2 * array)


@pytest.mark.parametrize(
    ("path", "namespace", "stage"),
    [
        ("/v2/models/double/infer", "default", None),
        ("/vision/v2/models/double/infer", "vision", None),
        ("/v2/models/double/stages/first/infer?a=b", "default", "first"),
        ("/vision/v2/models/double/stages/first%2Dhalf/infer", "vision", "first-half"),
    ],
)
async def test_a_path_names_namespace_workflow_and_stage(path, namespace, stage):
    """The namespace may stand in front, and one stage may be called alone."""
    async with gateway() as service:
        body, headers = infer_body(rows_of(1, 1))
        status, _, answer = await service.request("POST", path, body, headers)
        call = service.backend.calls[0]
    assert status == 200
    assert json.loads(answer[: answer.index(b"}]}") + 3])["model_name"] == (stage or "double")
    assert (call.namespace, call.workflow, call.stage) == (namespace, "double", stage)


@pytest.mark.parametrize(
    ("headers", "timeout_us", "limit_ms"),
    [
        ([], None, None),
        ([("Esg-Deadline-Ms", "120.5")], None, 120.5),
        ([], 50_000, 50.0),
        ([("Esg-Deadline-Ms", "120")], 50_000, 50.0),
        ([("Esg-Deadline-Ms", "40")], 50_000, 40.0),
    ],
)
async def test_the_smaller_limit_of_header_and_parameter_holds(headers, timeout_us, limit_ms):
    """Esg-Deadline-Ms and the protocol's timeout both limit a call."""
    parameters = {} if timeout_us is None else {"parameters": {"timeout": timeout_us}}
    async with gateway() as service:
        body, _ = infer_body(rows_of(1, 1), binary=False, **parameters)
        await service.request("POST", INFER, body, headers)
        assert service.backend.calls[0].timeout_ms == limit_ms


async def test_the_arrival_at_a_proxy_counts_if_it_is_trusted():
    """Esg-Arrival-Ms is an absolute time; what passed since then moves the arrival back."""
    async with gateway(rules=RequestRules(trust_arrival=True)) as service:
        body, _ = infer_body(rows_of(1, 1), binary=False)
        headers = [("Esg-Arrival-Ms", "0"), ("Esg-Deadline-Ms", "100")]
        await service.request("POST", INFER, body, headers)
        call = service.backend.calls[0]
        age_ms = call.timeout_ms - 100
        assert age_ms > 1.7e12
        assert call.arrival_ms + age_ms <= service.backend.now_ms()
        headers = [("Esg-Arrival-Ms", "nan")]
        status, _, answer = await service.request("POST", INFER, body, headers)
        assert (status, "send milliseconds" in error_of(answer)) == (400, True)


@pytest.mark.parametrize("header", ["Esg-Arrival-Ms", "Esg-Forwarded-Ms"])
@pytest.mark.parametrize("value", ["0", "nan", "3600000"])
async def test_a_client_cannot_make_its_request_older(header, value):
    """An old request jumps the queue, and counts as late however fast its answer is."""
    peer = HeldBackend()
    forwarded = ForwardedCalls(peer, {"10.0.0.1"}.__contains__)
    async with front(HeldBackend(), forwarded=forwarded) as service:
        body, _ = infer_body(rows_of(1, 1), binary=False)
        before_ms = peer.now_ms()
        headers = [(header, value), ("Esg-Deadline-Ms", "5000")]
        request = asyncio.create_task(service.request("POST", INFER, body, headers))
        backend = peer if header == "Esg-Forwarded-Ms" else service.backend
        await eventually(lambda: backend.calls)
        call, _ = backend.calls[0]
        assert call.arrival_ms >= before_ms
        assert call.timeout_ms == 5000
        backend.answer()
        assert (await request)[0] == 200


async def test_the_age_that_another_replica_tells_counts():
    """Forwarded requests keep their place in the queue and their deadline."""
    peer = HeldBackend()
    async with gateway(forwarded=ForwardedCalls(peer, {"127.0.0.1"}.__contains__)) as service:
        body, _ = infer_body(rows_of(1, 1), binary=False)
        headers = [("Esg-Forwarded-Ms", "3600000"), ("Esg-Deadline-Ms", "5000")]
        request = asyncio.create_task(service.request("POST", INFER, body, headers))
        await eventually(lambda: peer.calls)
        call, _ = peer.calls[0]
        assert peer.now_ms() - call.arrival_ms >= 3_600_000
        assert call.timeout_ms == 3_605_000
        peer.answer()
        assert (await request)[0] == 200


async def test_trace_headers_reach_the_model_server():
    """Headers traceparent and tracestate are passed on, and no others."""
    async with gateway() as service:
        body, headers = infer_body(rows_of(1, 1))
        trace = [("Traceparent", "00-ab-cd-01"), ("tracestate", "a=b"), ("Authorization", "x")]
        await service.request("POST", INFER, body, [*headers, *trace])
        received = service.played.runs[0].headers
    assert received["traceparent"] == "00-ab-cd-01"
    assert received["tracestate"] == "a=b"
    assert "authorization" not in received


async def test_health_ready_and_metadata():
    """The protocol's GET routes answer, by HEAD without a body."""
    async with gateway() as service:
        for path, key in [
            ("/v2", "extensions"),
            ("/v2/", "extensions"),
            ("/v2/health/live", "live"),
            ("/v2/health/ready", "ready"),
            ("/v2/models/double", "inputs"),
            ("/ns/v2/models/double/ready", "ready"),
            ("/v2/models/double/stages/a", "inputs"),
            ("/v2/models/double/stages/a/ready", "ready"),
            ("/v2/models/double/versions/1", "inputs"),
            ("/ns/v2/models/double/stages/a/versions/1/ready", "ready"),
        ]:
            status, headers, body = await service.request("GET", path)
            assert (status, key in json.loads(body)) == (200, True)
            assert await service.request("HEAD", path) == (200, headers, b"")
        service.backend.is_ready = False
        for path in ("/v2/health/ready", "/v2/models/double/ready"):
            status, headers, _ = await service.request("GET", path)
            assert (status, headers["retry-after"]) == (503, "1")
        assert (await service.request("GET", "/v2/models/triple/ready"))[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/", 404, "/v2/models/WORKFLOW"),
        ("GET", "/v1/models/double:predict", 404, "/v2/models/WORKFLOW"),
        ("POST", "/v2/models/double/versions/2/infer", 404, "version 1 alone"),
        ("POST", "/v2/models/triple/infer", 404, "no workflow"),
        ("GET", "/v2/models/double/infer", 405, "use POST"),
        ("DELETE", "/v2/models/double", 405, "use GET"),
        ("POST", f"/v2/models/{'d' * 3000}/infer", 414, "no name is so long"),
    ],
)
async def test_unknown_paths_are_refused_with_a_sentence(method, path, status, words):
    """The message says what to use instead."""
    async with gateway() as service:
        answer_status, _, body = await service.request(method, path)
    assert answer_status == status
    assert words in error_of(body)


async def test_a_connection_serves_requests_one_after_the_other():
    """A connection is kept, also after a refused request whose body is short."""
    async with gateway() as service, connection(service.port) as (reader, writer):
        for number in range(5):
            array = rows_of(number, 1, 10_000)
            body, headers = infer_body(array)
            path = INFER if number != 2 else "/v2/models/unknown/infer"
            writer.write(request_bytes("POST", path, body, headers))
            status, answer_headers, answer = await read_answer(reader)
            assert status == (404 if number == 2 else 200)
            if status == 200:
                assert np.array_equal(infer_outputs(answer_headers, answer)["y"], 2 * array)


async def test_pipelined_requests_are_answered_in_order():
    """A client may send several requests at once, long and short ones, valid or not."""
    async with gateway() as service, connection(service.port) as (reader, writer):
        data, expected = b"", []
        for number in range(60):
            array = rows_of(number, 1, 4 if number % 3 else 5_000)
            body, headers = infer_body(array)
            path = INFER if number % 7 else "/v2/models/unknown/infer"
            data += request_bytes("POST", path, body, headers)
            expected.append(2 * array if number % 7 else None)
        writer.write(data)
        for array in expected:
            status, answer_headers, answer = await read_answer(reader)
            if array is None:
                assert status == 404
            else:
                assert np.array_equal(infer_outputs(answer_headers, answer)["y"], array)


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_chunked_bodies_are_accepted(size):
    """A body without announced length comes in chunks of any size."""
    array = rows_of(1, 2, 10_000 if size > 1000 else 20)
    body, headers = infer_body(array)
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    headers = [*headers, ("Transfer-Encoding", "chunked")]
    async with gateway() as service, connection(service.port) as (reader, writer):
        for _ in range(2):
            writer.write(request_bytes("POST", INFER, headers=headers) + chunked)
            status, answer_headers, answer = await read_answer(reader)
            assert status == 200
            assert np.array_equal(infer_outputs(answer_headers, answer)["y"], 2 * array)


async def test_a_client_that_expects_100_sends_its_body_only_if_it_is_accepted():
    """The interim answer comes before the body; a refused request gets none."""
    body, headers = infer_body(rows_of(1, 1))
    headers = [*headers, ("Expect", "100-continue"), ("Content-Length", len(body))]
    async with gateway() as service:
        async with connection(service.port) as (reader, writer):
            writer.write(request_bytes("POST", INFER, headers=headers))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert (await read_answer(reader))[0] == 200
        service.backend.refusal = CallError(429, "the queue is full; wait", 2.5)
        async with connection(service.port) as (reader, writer):
            writer.write(request_bytes("POST", INFER, headers=headers))
            status, answer_headers, _ = await read_answer(reader)
            assert (status, answer_headers["retry-after"]) == (429, "3")
            assert await reader.read() == b""


async def test_http_1_0_and_connection_close_end_the_connection():
    """The answer says so, and the end of the stream follows."""
    async with gateway() as service:
        for request in (
            b"GET /v2 HTTP/1.0\r\n\r\n",
            b"GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n",
        ):
            answer = await service.raw(request)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"\r\nConnection: close\r\n" in answer


@pytest.mark.parametrize("size", [0, 10, 30_000])
async def test_an_offer_of_http_2_is_ignored(size):
    """Java's client offers an upgrade with its first request; it is answered by HTTP/1.1."""
    array = rows_of(1, 1, size + 1)
    body, headers = infer_body(array)
    offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c")]
    async with gateway() as service, connection(service.port) as (reader, writer):
        for _ in range(2):
            writer.write(request_bytes("GET", "/v2", headers=offer))
            writer.write(request_bytes("POST", INFER, body, [*headers, *offer]))
            assert (await read_answer(reader))[0] == 200
            status, answer_headers, answer = await read_answer(reader)
            assert status == 200
            assert np.array_equal(infer_outputs(answer_headers, answer)["y"], 2 * array)


async def test_requests_of_many_connections_share_batches():
    """Eight requests that wait together leave as fewer runs, and every answer is its own."""
    async with gateway(slots=1) as service:

        async def client(number):
            array = rows_of(number, 1 + number % 5)
            body, headers = infer_body(array, binary=bool(number % 2))
            status, answer_headers, answer = await service.request("POST", INFER, body, headers)
            assert status == 200
            assert np.array_equal(infer_outputs(answer_headers, answer)["y"], 2 * array)

        await asyncio.gather(*(client(number) for number in range(60)))
        assert len(service.played.runs) < 60
        assert max(run.rows for run in service.played.runs) <= 8
