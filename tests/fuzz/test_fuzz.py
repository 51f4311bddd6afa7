"""A slice of the fuzzing, and a server that it finds wanting."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.fuzz.fuzzing import fuzz
from tests.fuzz.http_client import HttpPort
from tests.fuzz.mutations import HttpRequest, garbage, json_request, mutate
from tests.fuzz.targets import HttpTarget, Targets, running_targets

REQUESTS = 600


@pytest.mark.slow
async def test_every_port_withstands_mutated_requests(monkeypatch):
    """Nothing fails, dies or grows, and sound requests in between have their answers."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with running_targets() as targets:
        report = await fuzz(targets, seed=1, numbers=range(REQUESTS))
    assert (report.server_errors, report.failures) == ([], [])
    assert report.requests == REQUESTS
    assert len({name for name, _ in report.statuses}) == len(targets.http) + 1


class _NoGrpc:
    """A port of gRPC that answers everything."""

    async def sound(self):
        return True


@asynccontextmanager
async def small_server(status_of):
    """Serve one target whose status is chosen by the bytes of a request."""

    async def answer(reader, writer):
        text = await reader.read(100_000)
        writer.write(b"HTTP/1.1 %d X\r\n\r\n" % status_of(text))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        request = json_request("/a", {"b": [1, 2], "c": "d"})
        yield Targets((HttpTarget("small", HttpPort(port), (request,)),), _NoGrpc(), ())


@pytest.mark.parametrize(
    ("status_of", "server_errors", "failures"),
    [
        (lambda text: 200 if b'"b": [1, 2]' in text else 400, False, False),
        (lambda text: 200 if b'"b": [1, 2]' in text else 503, False, False),
        (lambda text: 200 if b'"b": [1, 2]' in text else 500, True, False),
        (lambda _: 400, False, True),
    ],
    ids=["sound", "documented", "server error", "refuses sound requests"],
)
async def test_failures_are_found(monkeypatch, status_of, server_errors, failures):
    """An undocumented status of 500 counts, and a sound request without its answer."""
    monkeypatch.setattr("tests.fuzz.fuzzing.GRPC_RATIO", 0.0)
    async with small_server(status_of) as targets:
        report = await fuzz(targets, seed=1, numbers=range(150))
    assert (bool(report.server_errors), bool(report.failures)) == (server_errors, failures)


def test_a_number_decides_its_request():
    """A request that fails can be sent again alone."""
    request = json_request("/filter", {"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["a"]})
    wires = [[mutate(Random(n), request).wire() for n in range(300)] for _ in range(2)]
    assert wires[0] == wires[1]
    assert len(set(wires[0])) > 250
    assert garbage(Random(1)) == garbage(Random(1))


def test_a_sound_request_has_its_length():
    """The client adds what every HTTP request needs."""
    wire = HttpRequest("POST", "/a", b"xyz").wire()
    assert wire == b"POST /a HTTP/1.1\r\nHost: fuzz\r\nContent-Length: 3\r\n\r\nxyz"
