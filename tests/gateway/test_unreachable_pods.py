"""Pods whose model servers refuse connections: they get no batch until they are ready again."""

import asyncio

import pytest

from scheduler.gateway.calls import CallError
from scheduler.gateway.model_server import ModelServerError
from tests.gateway.harness import eventually
from tests.gateway.runtime_bed import bed, rows

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


async def test_the_last_pod_stays():
    """Requests get an error at once, and its server is used as soon as it is back."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").is_ready = False
        running.model("a").faults = [REFUSED] * 3
        with pytest.raises(CallError, match="cannot connect") as raised:
            await running.call("w", rows(1))
        assert (raised.value.status, raised.value.retry_after_s) == (503, 1.0)
        await running.call("w", rows(1))


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
