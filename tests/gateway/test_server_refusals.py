"""Model servers that refuse a request: the client gets the reason, and only that client."""

import asyncio

import numpy as np
import pytest

from scheduler.gateway.calls import CallError
from scheduler.gateway.model_server import ModelServerError
from tests.gateway.harness import eventually
from tests.gateway.runtime_bed import bed, rows


def error_of(status):
    return ModelServerError(status, f"127.0.0.1:8000 answered {status}: no")


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_a_request_that_ran_alone_is_invalid(status):
    """It counts as refused and not for the SLO, and the message has no address of a pod."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").faults = [error_of(status)]
        with pytest.raises(CallError) as raised:
            await running.call("w", rows(1))
        text = f"stage 'a': the model server answered {status}: no"
        assert (raised.value.status, str(raised.value)) == (400, text)
        assert running.model("a").batches == [1]
        await asyncio.sleep(0)
        assert (running.records.calls, running.records.refused) == ([], [400])
        assert running.runtime.dispatcher.workflows["default", "w"].shortfall_ratio == 0


@pytest.mark.parametrize("status", [401, 403, 404, 405, 409, 429, 500])
async def test_a_server_that_fails_is_no_mistake_of_the_client(status):
    """A wrong name of the model, say, is the operator's: the SLO counts the call."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").faults = [error_of(status)]
        with pytest.raises(CallError) as raised:
            await running.call("w", rows(1))
        text = f"stage 'a': the model server answered {status}: no"
        assert (raised.value.status, str(raised.value)) == (status, text)
        await asyncio.sleep(0)
        assert (running.records.calls, running.records.refused) == ([("w", "dropped")], [])


@pytest.mark.parametrize(("status", "retry_after_s"), [(503, 1.0), (429, 1.0), (500, None)])
async def test_a_server_without_a_time_for_another_attempt(status, retry_after_s):
    """The client of an unavailable or overloaded server hears when to try again."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").faults = [error_of(status)]
        with pytest.raises(CallError) as raised:
            await running.call("w", rows(1))
        assert raised.value.retry_after_s == retry_after_s


async def test_the_parts_of_a_refused_batch_run_alone_next():
    """One bad request costs the others no second batch with it."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=1000.0)
        model, first = await running.busy("w")
        model.bad_value, model.bad_status = -2.0, 400
        xs = [np.array([[float(value)]]) for value in (-1, -2, -3, -4)]
        calls = [running.call("w", x) for x in xs]
        model.gate.set()
        await first
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(answer, CallError) for answer in answers] == [False, True, False, False]
        assert answers[1].status == 400
        assert model.batches == [8, 4, 1, 1, 1, 1]
        assert running.records.calls == [("w", "hit")] * 4
        assert running.records.refused == [400]


async def test_a_part_of_a_long_request_that_is_refused_ends_it():
    """A request of several batches gets one answer, and its other parts are not run."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").faults = [error_of(400)]
        with pytest.raises(CallError, match="answered 400"):
            await running.call("w", rows(20))
        assert running.model("a").batches == [8]


async def with_two_inputs(running, function):
    """Have the model of a function describe a further input, which calls do not have."""
    model = running.model(function)
    tensor = {"datatype": "FP64", "shape": [-1, 1]}
    names = ("x", "z") if function == "a" else ("x-a", "z")
    model.described = {"inputs": [{"name": name, **tensor} for name in names]}
    reads = model.metadata_reads
    running.runtime.drain_pod(f"default/{function}-0")
    running.runtime.pod_ready(f"default/{function}-0")
    await eventually(lambda: model.metadata_reads > reads)
    await asyncio.sleep(0)
    return model


async def test_a_failure_without_an_input_is_a_mistake_of_the_client():
    """Some servers say 500 where an input is missing; metadata do not say which are optional."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        model = await with_two_inputs(running, "a")
        model.faults = [error_of(500)]
        with pytest.raises(CallError) as raised:
            await running.call("w", rows(1))
        text = "stage 'a': the model server answered 500: no; the request has no input 'z'"
        assert (raised.value.status, str(raised.value)) == (400, text)
        await asyncio.sleep(0)
        assert (running.records.calls, running.records.refused) == ([], [400])


async def test_a_failure_without_an_optional_input_is_the_servers():
    """The server has answered a request with these inputs before."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        model = await with_two_inputs(running, "a")
        await running.call("w", rows(1))
        model.faults = [error_of(500)]
        with pytest.raises(CallError) as raised:
            await running.call("w", rows(1))
        assert raised.value.status == 500
        await asyncio.sleep(0)
        assert running.records.calls == [("w", "hit"), ("w", "dropped")]


async def test_an_input_that_a_later_stage_lacks_is_no_mistake_of_the_client():
    """Its inputs are those that the Workflow maps."""
    async with bed() as running:
        running.serve("w", {"a": (), "b": ("a",)})
        (await with_two_inputs(running, "b")).faults = [error_of(500)]
        with pytest.raises(CallError) as raised:
            await running.call("w", rows(1))
        assert raised.value.status == 500
