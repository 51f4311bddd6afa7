"""Starts of pods that fail: deleted, reported with the cause, repeated after growing pauses."""

import asyncio
from itertools import pairwise

import pytest

from scheduler.cluster.errors import ApiError, ApiTimeoutError
from scheduler.dispatch.pods import PodStart
from scheduler.gateway.scaling.pod_limits import SEEN_MS
from tests.gateway.pool_bed import (
    FUNCTION,
    LARGE,
    ROOM_S,
    SMALL,
    START_S,
    LostAnswer,
    gateway,
)
from tests.virtual_loop import run_virtually, virtually


@virtually
async def test_a_pod_that_is_never_reported_is_deleted():
    """After a minute a start counts as failed, and what it may have created is deleted."""
    async with gateway() as bed:
        bed.pods.is_silent = True
        bed.scaler.wanted = 1
        await asyncio.sleep(SEEN_MS / 1000 + 2)
        assert bed.pods.deleted == bed.pods.created[:1]
        assert "has not reported it" in bed.events[0][-1]


@pytest.mark.parametrize(
    "fault",
    [
        LostAnswer(ApiTimeoutError("no answer", sent=True)),
        ApiTimeoutError("no answer", sent=False),
        ApiError(500, "InternalError", "etcd is away"),
        ApiError(429, "TooManyRequests", "later"),
    ],
    ids=["lost answer", "not sent", "server error", "too many requests"],
)
def test_a_creation_without_an_answer_makes_one_pod(fault):
    """It is repeated with the same name, and the pod of the first attempt is not doubled."""

    async def scenario():
        async with gateway() as bed:
            bed.pods.faults = [fault, fault]
            bed.scaler.wanted = 1
            await asyncio.sleep(10)
            assert len(bed.pods.created) == 1 == len(bed.pods.objects)
            assert bed.scaler.failures == []

    run_virtually(scenario())


@virtually
async def test_a_pod_without_room_is_replaced_by_another_share():
    """It is deleted after a while, the scaler and an Event are told, and its share pauses."""
    async with gateway() as bed:
        bed.scaler.wanted = 1
        await asyncio.sleep(1)
        [first] = bed.pods.created
        message = "0/4 nodes are available: GPU 0: 40 % free, 100 % asked."
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        bed.pods.set_status(first, conditions=[condition])
        await asyncio.sleep(ROOM_S + 1)
        assert bed.scaler.failures == [PodStart(FUNCTION, LARGE)]
        assert bed.scaler.found_room == [False]
        assert bed.pods.deleted == [first]
        [(kind, name, severity, reason, text)] = bed.events
        assert (kind, name, severity, reason) == (
            "FunctionServer", "s", "Warning", "PodStartFailed",
        )  # fmt: skip
        assert message in text
        assert "no node has room" in text
        assert len(bed.pods.created) == 1
        assert message in str(bed.refusal("w"))
        bed.scaler.share = SMALL
        await asyncio.sleep(1.5)
        assert len(bed.pods.created) == 2
        assert bed.refusal("w") is None


async def pauses_of_failed_starts(bed, number):
    """Let the next pods fail while they start; return the times between their creations, s."""
    times_s = []
    for _ in range(number):
        bed.pods.next_created.clear()
        await bed.pods.next_created.wait()
        times_s.append(asyncio.get_running_loop().time())
        bed.pods.set_status(bed.pods.created[-1], phase="Failed", reason="OutOfcpu")
        await asyncio.sleep(0.1)
        bed.pods.remove(bed.pods.created[-1])
    return [b - a for a, b in pairwise(times_s)]


@virtually
async def test_pauses_grow_and_end_when_a_pod_has_served():
    """Failures of a share make longer pauses, and a pod that serves for a minute ends them."""
    async with gateway() as bed:
        bed.scaler.wanted = 1
        pauses_s = await pauses_of_failed_starts(bed, 4)
        assert all(5 * 2**i <= pause_s <= 5 * 2**i + 2 for i, pause_s in enumerate(pauses_s))
        assert all("OutOfcpu" in event[-1] for event in bed.events)
        bed.pods.next_created.clear()
        await bed.pods.next_created.wait()
        bed.pods.bind(bed.pods.created[-1])
        await asyncio.sleep(70)
        bed.pods.set_status(bed.pods.created[-1], phase="Failed")
        count = len(bed.pods.created)
        await asyncio.sleep(7)
        assert len(bed.pods.created) == count + 1


@virtually
async def test_pauses_grow_beside_a_pod_that_has_served_for_long():
    """Its share worked when it started; now the cluster is full, for example."""
    async with gateway() as bed:
        await bed.first_pod()
        await asyncio.sleep(70)
        bed.scaler.wanted = 2
        assert (await pauses_of_failed_starts(bed, 4))[2] >= 20


@virtually
async def test_a_refused_creation_is_told():
    """A missing right and a denial stand in the Event, with what to do."""
    async with gateway() as bed:
        missing = 'pods is forbidden: User "x" cannot create resource "pods" in API group ""'
        bed.pods.faults = [ApiError(403, "Forbidden", missing)]
        bed.scaler.wanted = 1
        await asyncio.sleep(2)
        assert "add the namespace to the chart's gateway.pods.namespaces" in bed.events[0][-1]
        assert "gateway.pods.namespaces" in str(bed.refusal("w"))
        bed.pods.faults = [ApiError(403, "Forbidden", "exceeded quota: gpus")]
        await asyncio.sleep(8)
        assert "the API server refused it: exceeded quota: gpus" in bed.events[1][-1]


@virtually
async def test_a_model_that_is_never_ready_fails_the_start():
    """A pod whose model does not load is deleted after the limit."""
    async with gateway() as bed:
        bed.is_model_ready = False
        await bed.first_pod()
        await asyncio.sleep(START_S - 2)
        assert bed.scaler.failures == []
        await asyncio.sleep(4)
        assert bed.pods.deleted == bed.pods.created[:1]
        assert "its model is not ready" in bed.events[0][-1]


@virtually
async def test_containers_that_cannot_start_fail_the_start():
    """A wrong image ends the pod as soon as the kubelet gives up, with its message."""
    async with gateway() as bed:
        name = await bed.first_pod(ready=False)
        waiting = {"reason": "ImagePullBackOff", "message": "no such image: i"}
        bed.pods.set_status(name, containerStatuses=[{"state": {"waiting": waiting}}])
        await asyncio.sleep(1)
        assert bed.pods.deleted == [name]
        assert "ImagePullBackOff: no such image: i" in bed.events[0][-1]
        assert bed.scaler.found_room == [True]


@virtually
async def test_a_pod_that_serves_and_is_deleted_is_no_failed_start():
    """A drained node deletes its pods; others are started at once."""
    async with gateway() as bed:
        name = await bed.first_pod()
        await asyncio.sleep(1)
        bed.pods.remove(name)
        await asyncio.sleep(1.5)
        assert bed.scaler.failures == []
        assert len(bed.pods.created) == 2
