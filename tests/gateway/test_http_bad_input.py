"""Invalid requests over HTTP: a 4xx with a sentence, and nothing else stops."""

import asyncio
import json
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler.gateway.http.front import RequestRules
from tests.examples import examples
from tests.gateway.harness import connection, gateway, read_answer, request_bytes
from tests.gateway.messages import HEADER, INFER, error_of, infer_body, rows_of

BODY, HEADERS = infer_body(rows_of(1, 2))
LENGTH = int(HEADERS[0][1])


def _document(**changes):
    """Return a JSON request with another tensor."""
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]} | changes
    return json.dumps({"inputs": [tensor]}).encode()


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b"", [], "JSON"),
        (b"[]", [], "send an object"),
        (b"{}", [], "no inputs"),
        (b'{"inputs":[]}', [], "no inputs"),
        (_document(shape=[2, 3]), [], "its shape needs 6"),
        (_document(data=[[1, 2], [3]]), [], "not nested like its shape"),
        (_document(datatype="FP33"), [], "use one of"),
        (_document(data=[1, 2, 3, "4"]), [], "send JSON values of FP32"),
        (_document(datatype="BYTES", data=["a", "b", "c", 1]), [], "JSON values of BYTES"),
        (_document(name=""), [], "send a text"),
        (_document(shape=[2**62, 2**62]), [], "its shape needs"),
        (BODY[:-1], HEADERS, "more than the rest of the body"),
        (BODY + b"x", HEADERS, "belong to no tensor"),
        (BODY, [(HEADER, LENGTH - 1)], "JSON header is invalid"),
        (BODY, [(HEADER, LENGTH + 1)], "JSON header is invalid"),
        (BODY, [(HEADER, 10**9)], "send the bytes of the JSON header"),
        (BODY, [(HEADER, -5)], "send the bytes of the JSON header"),
        (BODY, [(HEADER, "9" * 5000)], "send the bytes of the JSON header"),
        (BODY, [(HEADER, "ten")], "send the bytes of the JSON header"),
        (BODY, [*HEADERS, ("Esg-Deadline-Ms", "soon")], "send milliseconds"),
        (BODY, [*HEADERS, ("Esg-Deadline-Ms", "-1")], "send milliseconds"),
    ],
)
async def test_an_invalid_request_is_answered_with_400(body, headers, words):
    """The message says what is wrong; no call begins, and the connection stays."""
    async with gateway() as service, connection(service.port) as (reader, writer):
        for _ in range(2):
            writer.write(request_bytes("POST", INFER, body, headers))
            status, _, answer = await read_answer(reader)
            assert status == 400
            assert words in error_of(answer)
        assert service.backend.calls == []
        assert service.refused == [400, 400]


async def test_bytes_tensors_with_lengths_that_lie_are_refused():
    """Elements of a BYTES tensor have to fill its bytes exactly."""
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES"}
    header = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": 8}}]}).encode()
    async with gateway() as service:
        for lie in (0, 3, 5, 2**32 - 1):
            body = header + lie.to_bytes(4, "little") + b"abcd"
            status, _, answer = await service.request("POST", INFER, body, [(HEADER, len(header))])
            assert status == 400
            assert "4-byte little-endian length" in error_of(answer)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("NONSENSE\r\n\r\n", 400),
        ("GET /v2 HTTP/3.7\r\n\r\n", 400),
        ("GET /v2\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (f"POST {INFER} HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (f"POST {INFER} HTTP/1.1\r\nContent-Length: 1{'0' * 40}\r\n\r\n", 400),
        (f"POST {INFER} HTTP/1.1\r\nContent-Length: 1{'0' * 12}\r\n\r\n", 413),
        (f"POST {INFER} HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (
            f"POST {INFER} HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (f"POST {INFER} HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (f"POST {INFER} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (f"POST {INFER} HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", 415),
        (f"POST {INFER} HTTP/1.1\r\nExpect: miracles\r\n\r\n", 417),
        (f"GET /{'x' * 100_000} HTTP/1.1\r\n\r\n", 431),
        (f"GET /v2 HTTP/1.1\r\nX: {'x' * 100_000}\r\n\r\n", 431),
        ("CONNECT gateway:80 HTTP/1.1\r\n\r\n", 404),
    ],
)
async def test_what_is_no_valid_http_is_refused(request_text, status):
    """One answer with a sentence, and no further one for what follows a broken request."""
    data = request_text.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1).encode()
    async with gateway() as service:
        answer = await service.raw(data)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert error_of(body)
        assert (await service.request("GET", "/v2"))[0] == 200


async def test_a_gigabyte_that_is_only_announced_costs_nothing():
    """The refusal comes before the body, and no memory is reserved for it."""
    async with gateway() as service, connection(service.port) as (reader, writer):
        writer.write(request_bytes("POST", INFER, headers=[*HEADERS, ("Content-Length", 2**30)]))
        status, headers, body = await read_answer(reader)
        assert (status, headers["connection"]) == (413, "close")
        assert "67,108,864 bytes" in error_of(body)
        assert service.refused == [413]
        assert service.memory.held_bytes == 0


@pytest.mark.parametrize("rules", [RequestRules(), RequestRules(json_bytes_max=1000)])
async def test_long_json_is_refused_before_it_is_parsed(rules):
    """Parsing takes the time of all other calls, so its length has a limit: by default, 1 MiB."""
    size = rules.json_bytes_max + 1
    async with gateway(rules=rules) as service:
        for headers in ([], [(HEADER, size)]):
            status, _, body = await service.request("POST", INFER, b" " * (size + 99), headers)
            assert status == 413
            assert "send tensors as binary data" in error_of(body)
        assert service.refused == [413, 413]


async def test_many_values_are_refused_before_they_are_parsed():
    """A quarter of the bytes that JSON may have; the text that is counted is no JSON."""
    async with gateway(rules=RequestRules(json_bytes_max=100_000)) as service:
        status, _, body = await service.request("POST", INFER, b"," * 25_001)
        assert status == 413
        assert "about 25,001 values of JSON" in error_of(body)
        status, _, body = await service.request("POST", INFER, b"," * 25_000)
        assert status == 400


REQUEST = request_bytes("POST", INFER, BODY, HEADERS)
PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            REQUEST, REQUEST[:-1], BODY, b"\r\n\r\n", b"\r\n", b"POST ", INFER.encode(),
            b" HTTP/1.1\r\n", b"Content-Length: 20000\r\n", b"Transfer-Encoding: chunked\r\n",
            b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n",
            b"Inference-Header-Content-Length: 5\r\n", b"GET /v2 HTTP/1.1\r\n\r\n",
            b"5\r\nhello\r\n", b"0\r\n\r\n", b"x" * 20_000,
        ]
    ),
)  # fmt: skip


async def test_any_bytes_stop_nothing_and_cost_nothing():
    """No bytes cause a 5xx but 501 and 505, a hang or held memory; the next request is answered."""
    loop = asyncio.get_running_loop()
    async with gateway() as service:

        async def send(pieces):
            async with connection(service.port) as (reader, writer):
                for piece in pieces:
                    writer.write(piece)
                writer.write_eof()
                return await reader.read()

        @examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(st.lists(PIECES, max_size=8))
        def check(pieces):
            received = asyncio.run_coroutine_threadsafe(send(pieces), loop).result(30)
            for line in received.split(b"HTTP/1.1 ")[1:]:
                assert line[:3] in {b"501", b"505"} or line[:1] in b"1234"

        await asyncio.to_thread(check)
        status, _, _ = await service.request("POST", INFER, BODY, HEADERS)
        assert status == 200


CHUNKED = request_bytes("POST", INFER, headers=[*HEADERS, ("Transfer-Encoding", "chunked")])
CHUNKS = b"%x\r\n%b\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize("start", [b"0\r\nTrailer: ", b"1;extension="], ids=["trailer", "chunk"])
async def test_what_is_no_part_of_a_chunked_body_is_bounded(start):
    """A trailer or an extension without an end is refused like a head without one."""
    async with gateway() as service, connection(service.port) as (reader, writer):
        writer.write(CHUNKED + CHUNKS)
        await writer.drain()
        writer.write(start)
        sending = asyncio.create_task(_send_without_end(writer))
        status, _, answer = await read_answer(reader)
        assert status == 431
        assert "the headers exceed" in error_of(answer)
        await sending


async def _send_without_end(writer):
    with suppress(OSError):  # the server ends the connection
        for _ in range(200):
            writer.write(b"a" * 10_000)
            await writer.drain()


async def test_a_trailer_is_no_header_of_the_next_request():
    """The next request on the connection has its own headers alone."""
    async with gateway() as service, connection(service.port) as (reader, writer):
        writer.write(CHUNKED + CHUNKS + b"0\r\nEsg-Deadline-Ms: soon\r\n\r\n")
        writer.write(request_bytes("POST", INFER, BODY, HEADERS))
        for _ in range(2):
            status, _, _ = await read_answer(reader)
            assert status == 200
