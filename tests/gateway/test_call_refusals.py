"""Calls that end without outputs: refused, late, cancelled, or cut off by a drain."""

import asyncio

import pytest

from scheduler.gateway.calls import CallError
from scheduler.oip.errors import MessageError
from tests.gateway.runtime_bed import bed, rows

CHAIN = {"a": (), "b": ("a",)}


async def test_a_cancelled_call_leaves_its_queue():
    """Rows of a client that hung up are not sent."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=1000.0)
        model, first = await running.busy("w")
        gone, stays = running.call("w", rows(3, 2)), running.call("w", rows(2, 3))
        gone.cancel()
        await asyncio.sleep(0)
        model.gate.set()
        await asyncio.gather(first, stays)
        assert model.batches == [8, 2]
        assert ("w", "dropped") in running.records.calls


async def test_a_limit_of_the_client():
    """A call is refused when its own limit is over, and leaves the queue."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=1000.0)
        model, first = await running.busy("w")
        with pytest.raises(CallError, match="within the request's limit of 5 ms") as raised:
            await running.call("w", rows(1, 2), timeout_ms=5.0)
        assert raised.value.status == 504
        model.gate.set()
        await first
        assert model.batches == [8]


async def test_late_calls_are_dropped_where_their_workflow_says_so():
    """With onLate drop, a call that cannot be in time is refused at once."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=50.0, slo_ms=20.0, on_late="drop")
        with pytest.raises(CallError, match="cannot be in time") as raised:
            await running.call("w", rows(1))
        assert raised.value.status == 503
        assert raised.value.retry_after_s is not None
        assert not running.model("a").batches


async def test_checks_before_the_body():
    """Unknown names, missing pods and long queues are refused before a body is read."""
    async with bed(rows_max=4) as running:
        running.serve("w", CHAIN)
        assert running.refusal("w") is None
        assert running.refusal("w", "b") is None
        assert (running.refusal("v").status, "w" in str(running.refusal("v"))) == (404, True)
        assert (running.refusal("w", "z").status) == 404
        running.runtime.drain_pod("default/b-0")
        assert running.refusal("w").status == 503
        assert "no pod of b is ready" in str(running.refusal("w"))
        assert running.refusal("w", "a") is None
        assert not running.runtime.ready("default", "w")
        running.runtime.pod_ready("default/b-0")
        assert running.runtime.ready("default", "w")
        model = running.model("a")
        model.gate.clear()
        calls = [running.call("w", rows(8, seed)) for seed in range(3)]
        await model.begun.wait()
        refusal = running.refusal("w")
        assert (refusal.status, refusal.retry_after_s >= 1) == (429, True)
        model.gate.set()
        await asyncio.gather(*calls)
        assert running.refusal("w") is None
        assert set(running.records.refused) == {404, 429, 503}


async def test_a_drain_waits_for_open_calls():
    """A draining gateway refuses new calls and answers the others."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        model = running.model("a")
        model.gate.clear()
        answer = running.call("w", rows(1))
        await model.begun.wait()
        draining = asyncio.create_task(running.runtime.drain(60))
        await asyncio.sleep(0)
        assert running.refusal("w").status == 503
        assert not running.runtime.ready()
        assert not draining.done()
        model.gate.set()
        await answer
        await draining


async def test_a_removed_workflow_refuses_its_open_calls():
    """Calls of a workflow that is deleted get an answer."""
    async with bed() as running:
        running.serve("w", {"a": ()}, latency_ms=1000.0)
        model = running.model("a")
        model.gate.clear()
        calls = [running.call("w", rows(8, seed)) for seed in range(2)]
        await model.begun.wait()
        running.runtime.remove_workflow(("default", "w"))
        for call in calls:
            with pytest.raises(CallError, match="has changed") as raised:
                await call
            assert raised.value.status == 503
        model.gate.set()
        assert running.refusal("w").status == 404


async def test_a_call_that_no_stage_can_take():
    """An output that an earlier stage lacks is an error of this call alone."""
    async with bed() as running:
        running.serve("w", CHAIN)
        running.model("a").output = "other"
        with pytest.raises(MessageError, match="stage 'a' lacks output 'y-a'"):
            await running.call("w", rows(1))
