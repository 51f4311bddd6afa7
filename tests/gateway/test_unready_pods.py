"""Pods of templates that have served, and are not ready any more."""

import asyncio

from scheduler.gateway.model_server import ModelServerError
from tests.gateway.pool_bed import START_S, gateway
from tests.gateway.runtime_bed import rows
from tests.virtual_loop import run_virtually

NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


async def serving_pod(bed):
    """Start a pod, and return its name once it serves."""
    bed.scaler.wanted = 1
    await asyncio.sleep(1)
    [name] = bed.pods.created
    bed.pods.bind(name)
    await asyncio.sleep(1)
    assert bed.states() == ["ready"]
    return name


async def replace_a_pod():
    async with gateway() as bed:
        name = await serving_pod(bed)
        bed.pods.set_status(name, **NOT_READY)
        await asyncio.sleep(START_S - 2)
        assert name not in bed.pods.deleted
        await asyncio.sleep(4)
        assert name in bed.pods.deleted
        assert any("it was ready, and has not been for" in event[-1] for event in bed.events)


async def interrupt_a_pod():
    async with gateway() as bed:
        name = await serving_pod(bed)
        for _ in range(3):
            bed.pods.set_status(name, **NOT_READY)
            await asyncio.sleep(START_S / 2)
            bed.pods.set_status(name, **READY)
            await asyncio.sleep(1)
        await asyncio.sleep(START_S)
        assert name not in bed.pods.deleted
        assert "ready" in bed.states()


async def replace_a_pod_without_a_server():
    async with gateway() as bed:
        name = await serving_pod(bed)
        refused = ModelServerError(503, "cannot connect", retryable=True, is_unreachable=True)
        dead = bed.models[f"default/{name}"]
        dead.is_ready, dead.faults = False, [refused]
        call = bed.call("w", rows(1))
        await asyncio.sleep(2)
        assert bed.states() == ["draining", "starting"]
        new = bed.pods.created[-1]
        bed.pods.bind(new)
        await call
        assert dead.batches == [1]
        await asyncio.sleep(START_S + 2)
        assert name in bed.pods.deleted
        assert new not in bed.pods.deleted
        assert any("it was ready, and has not been for" in event[-1] for event in bed.events)


def test_a_pod_that_refuses_connections_is_replaced():
    """Another one takes its requests, even if Kubernetes calls it ready; then it is deleted."""
    run_virtually(replace_a_pod_without_a_server())


def test_a_pod_that_is_not_ready_any_more_is_replaced():
    """A model server that hangs does not hold its share of a GPU without end."""
    run_virtually(replace_a_pod())


def test_a_pod_that_is_ready_again_stays():
    """Short failures of a readiness probe end no pod, however many there are."""
    run_virtually(interrupt_a_pod())
