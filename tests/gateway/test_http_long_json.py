"""Long JSON is read and written off the event loop, so that it delays no other request."""

import asyncio
import threading

import numpy as np
import pytest

from scheduler.gateway.http import front as module
from tests.gateway.backend import HeldBackend
from tests.gateway.harness import connection, eventually, front, gateway, request_bytes
from tests.gateway.messages import INFER, error_of, infer_body, infer_outputs, rows_of

LONG = rows_of(1, 1, 5000)
SHORT = rows_of(2, 1)


class Held:
    """A function that waits until the test lets it go on.

    Attributes:
        began: event of its first call.
        goes_on: event that lets its calls end.
    """

    def __init__(self, function):
        self._function = function
        self.began, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, *arguments):
        self.began.set()
        assert self.goes_on.wait(60)
        return self._function(*arguments)


@pytest.fixture
def held_reading(monkeypatch):
    held = Held(module.parse_request)
    original = module.parse_request

    def parse_request(body, *arguments):
        return (held if len(body) > 10_000 else original)(body, *arguments)

    monkeypatch.setattr(module, "parse_request", parse_request)
    yield held
    held.goes_on.set()


async def sent(service, array, **options):
    body, headers = infer_body(array, **options)
    status, answer_headers, answer = await service.request("POST", INFER, body, headers)
    return status, infer_outputs(answer_headers, answer)["y"] if status == 200 else answer


@pytest.mark.replaces
async def test_others_are_answered_while_long_json_is_read(held_reading):
    async with gateway() as service:
        long = asyncio.create_task(sent(service, LONG, binary=False))
        await eventually(held_reading.began.is_set)
        for binary in (True, False):
            status, outputs = await sent(service, SHORT, binary=binary)
            assert status == 200
            assert np.array_equal(outputs, 2 * SHORT)
        assert not long.done()
        held_reading.goes_on.set()
        status, outputs = await long
        assert status == 200
        assert np.array_equal(outputs, 2 * LONG)


@pytest.mark.replaces
async def test_others_are_answered_while_long_json_is_written(monkeypatch):
    """The request is short: its output is what is long."""
    held = Held(module.write_response)
    original = module.write_response

    def write_response(model, request, outputs):
        is_long = outputs[0].shape[-1] > 10_000
        return (held if is_long else original)(model, request, outputs)

    monkeypatch.setattr(module, "write_response", write_response)
    async with gateway() as service:
        body, headers = infer_body(rows_of(1, 1, 50_000), parameters={})
        long = asyncio.create_task(service.request("POST", INFER, body, headers))
        await eventually(held.began.is_set)
        assert (await sent(service, SHORT))[0] == 200
        held.goes_on.set()
        status, headers, answer = await long
        assert status == 200
        assert np.array_equal(infer_outputs(headers, answer)["y"], 2 * rows_of(1, 1, 50_000))


async def test_errors_of_long_json_are_answered():
    """That of its reading, and that of the backend."""
    async with gateway() as service:
        status, _, answer = await service.request("POST", INFER, b"[" + b" " * 50_000)
        assert (status, "JSON header is invalid" in error_of(answer)) == (400, True)
        assert service.refused == [400]
        body, _ = infer_body(LONG, binary=False)
        path = INFER.replace("double", "triple")
        status, _, answer = await service.request("POST", path, body)
        assert (status, "no workflow" in error_of(answer)) == (404, True)
    async with front(HeldBackend()) as service:
        request = asyncio.create_task(sent(service, LONG, binary=False))
        await eventually(lambda: service.backend.calls)
        service.backend.calls[0][1].set_exception(ZeroDivisionError())
        assert (await request)[0] == 500


async def test_a_client_of_long_json_that_hangs_up_cancels_its_call():
    async with front(HeldBackend()) as service:
        body, headers = infer_body(LONG, binary=False)
        async with connection(service.port) as (_, writer):
            writer.write(request_bytes("POST", INFER, body, headers))
            await eventually(lambda: service.backend.calls)
        await eventually(service.backend.calls[0][1].cancelled)


@pytest.mark.replaces
async def test_a_client_that_hangs_up_while_its_json_is_read_begins_no_call(held_reading):
    async with front(HeldBackend()) as service:
        body, headers = infer_body(LONG, binary=False)
        async with connection(service.port) as (_, writer):
            writer.write(request_bytes("POST", INFER, body, headers))
            await eventually(held_reading.began.is_set)
        await eventually(lambda: not service.connections.connections)
        held_reading.goes_on.set()
        assert (await service.request("GET", "/v2"))[0] == 200
        assert service.backend.calls == []
