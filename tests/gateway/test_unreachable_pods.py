"""Pods whose model servers refuse connections: they get no batch until they are ready again."""

import asyncio

import pytest

from scheduler.gateway.calls import CallError
from scheduler.gateway.model_server import ModelServerError
from scheduler.server.background import repeat
from tests.gateway.harness import eventually
from tests.gateway.runtime_bed import bed, rows, workflow
from tests.virtual_loop import virtually

REFUSED = ModelServerError(503, "cannot connect", retryable=True, is_unreachable=True)


async def refused(running):
    """Return the model of a pod that has just refused a batch; another pod answered it."""
    running.serve("w", {"a": ()}, pods=2)
    model = running.model("a")
    model.is_ready, model.faults = False, [REFUSED]
    await full_batches(running, 2)
    assert len(model.batches) == 1
    return model


async def full_batches(running, count):
    """Make calls that need a batch each."""
    await asyncio.gather(*[running.call("w", rows(8, seed)) for seed in range(count)])


async def test_a_pod_that_refuses_leaves_the_pool_and_comes_back():
    """No further batch goes to it, until its server says that the model is ready."""
    async with bed() as running:
        model = await refused(running)
        await full_batches(running, 8)
        assert len(model.batches) == 1
        model.is_ready = True
        await eventually(lambda: model.metadata_reads == 2)
        await full_batches(running, 8)
        assert len(model.batches) > 1
        assert running.records.calls == [("w", "hit")] * 18


async def test_the_last_pod_leaves_too():
    """A waiting request is answered once it is back, and new ones are told to come again."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        model = running.model("a")
        model.is_ready, model.faults = False, [REFUSED]
        call = running.call("w", rows(1))
        await eventually(lambda: model.ready_reads > 1)
        refusal = running.refusal("w")
        assert (refusal.status, refusal.retry_after_s) == (503, 1.0)
        assert "no pod of a is ready in namespace default: a-0 refuses connections" in str(refusal)
        assert (model.batches, call.done()) == ([1], False)
        model.is_ready = True
        await call
        assert model.batches == [1, 1]
        assert running.refusal("w") is None
        assert running.records.calls == [("w", "hit")]


async def test_without_any_pod_a_request_waits_for_its_deadline_alone():
    """It is refused with a time for another attempt, after one connection."""
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=50.0, on_late="drop")
        running.model("a").is_ready = False
        running.model("a").faults = [REFUSED] * 3
        with pytest.raises(CallError) as raised:
            await running.call("w", rows(1))
        assert (raised.value.status, raised.value.retry_after_s) == (503, 1.0)
        assert running.model("a").batches == [1]


@virtually
async def test_late_requests_are_refused_after_a_minute_without_any_pod():
    """Those whose deadline is not over wait on, and a pod that is back begins a new minute."""
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=1_000.0)
        running.serve("patient", {"b": ()})
        for function in ("a", "b"):
            running.model(function).is_ready = False
            running.model(function).faults = [REFUSED]
        running.runtime.set_workflow(workflow("patient", {"b": ()}, slo_ms=600_000.0))
        upkeep = asyncio.create_task(repeat(running.runtime.refuse_unserved, 5.0))
        late, patient = running.call("w", rows(1)), running.call("patient", rows(1))
        await asyncio.sleep(50)
        assert not late.done()
        running.model("a").is_ready = True
        await asyncio.sleep(50)
        assert await late
        running.model("a").is_ready = False
        running.model("a").faults = [REFUSED]
        late = running.call("w", rows(2))
        await asyncio.sleep(80)
        upkeep.cancel()
        assert str(late.exception()) == str(running.refusal("w"))
        assert not patient.done()
        assert running.records.calls == [("w", "miss"), ("w", "dropped")]
        running.model("b").is_ready = True
        await patient


async def test_another_pod_answers_what_the_last_one_refused():
    """A request in the queue goes to whichever pod is ready first."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        dead = running.model("a")
        dead.is_ready, dead.faults = False, [REFUSED]
        call = running.call("w", rows(1))
        await eventually(lambda: dead.ready_reads > 0)
        running.add_pod("a", 1)
        await call
        assert (dead.batches, running.model("a", 1).batches) == ([1], [1])


@pytest.mark.parametrize("end", ["drain_pod", "remove_pod"])
async def test_a_pod_that_leaves_meanwhile_stays_away(end):
    """Kubernetes says that it is not ready or gone, whatever its server says then."""
    async with bed() as running:
        model = await refused(running)
        reads = model.ready_reads
        getattr(running.runtime, end)("default/a-0")
        model.is_ready = True
        await full_batches(running, 8)
        assert len(model.batches) == 1
        assert model.ready_reads == reads


async def test_readiness_that_kubernetes_reports_ends_the_wait():
    """A container that was restarted is ready by its own probe."""
    async with bed() as running:
        model = await refused(running)
        running.runtime.pod_ready("default/a-0")
        await full_batches(running, 8)
        assert len(model.batches) > 1
