"""Pools of two groups of gateways, which have slices of one GPU in one namespace (ADR 59)."""

import asyncio
from contextlib import asynccontextmanager

from scheduler.model import names
from scheduler.model.pools import gateway_group
from tests.gateway.pool_bed import Pods
from tests.gateway.runtime_bed import BATCHES, rows
from tests.gateway.slice_bed import HALF, LONGEST_S, RUN_S, Gpus, pooled_gateway
from tests.virtual_loop import virtually

GPU = "GPU-1"


@asynccontextmanager
async def gateway(pods, gpus, group):
    """Run the gateway of a group, whose pool has half a GPU."""
    options = {"start": HALF, "group": group, "uid": f"of-{group}"}
    async with pooled_gateway(pods, gpus, **options) as bed:
        yield bed


@asynccontextmanager
async def two_groups():
    """Run the gateways of the groups a and b, with an open slice and two processes each."""
    pods, gpus = Pods(), Gpus()
    async with gateway(pods, gpus, "a") as first, gateway(pods, gpus, "b") as second:
        for bed in (first, second):
            await bed.serve(2)
        yield first, second


def burst(bed, batches):
    """Call with so many full batches at once; return the calls."""
    return [asyncio.ensure_future(bed.outputs("w", rows(BATCHES[-1], n))) for n in range(batches)]


@virtually
async def test_each_group_has_its_slice():
    """Their pods have the group's label, and the batches of both fit on the GPU together."""
    async with two_groups() as beds:
        for bed in beds:
            pods = [bed.pods.objects[name] for name in (*bed.holders(), *bed.members())]
            assert [gateway_group(raw) for raw in pods] == [bed.group] * 3
            assert (bed.slice.gpu, bed.slice.percent) == (GPU, 50)
        await asyncio.gather(*(call for bed in beds for call in burst(bed, 6)))
        assert beds[0].gpus.most_percent == 100


@virtually
async def test_a_hand_over_of_one_group_leaves_the_other_its_batches():
    """The new owner waits for the longest run; the other group's batches go on meanwhile."""
    pods, gpus = Pods(), Gpus()
    async with gateway(pods, gpus, "b") as second:
        async with gateway(pods, gpus, "a") as first:
            await first.serve(2)
            await second.serve(2)
            lost = burst(first, 2)
            await asyncio.sleep(RUN_S / 10)
        for call in lost:
            call.cancel()
        handed_over_s = asyncio.get_running_loop().time()
        async with gateway(pods, gpus, "a") as successor:
            successor.scaler.wanted = 2
            waiting = asyncio.ensure_future(successor.outputs("w", rows(1)))
            calls = burst(second, 2)
            await calls[0]
            assert second.slice.is_open
            assert not successor.slice.is_open
            assert asyncio.get_running_loop().time() < handed_over_s + 2 * RUN_S
            await waiting
            assert asyncio.get_running_loop().time() >= handed_over_s + LONGEST_S
            await calls[1]
    assert gpus.most_percent == 100


@virtually
async def test_a_function_that_moves_leaves_its_pool_and_is_in_the_other():
    """Its server is deleted, and created again with the other label (ADR 58)."""
    pods, gpus = Pods(), Gpus()
    async with gateway(pods, gpus, "a") as former:
        holder = await former.serve(1)
        await former.outputs("w", rows(1))
        [server] = former.discovery.in_use()
        raw = {"metadata": {"name": server.metadata.name, "namespace": server.key[0]}}
        former.discovery.servers.delete(raw)
        for name in (holder, *former.members()):  # Kubernetes' garbage collector
            await pods.delete("default", name, "")
            pods.remove(name)
        assert list(former.runtime.dispatcher.slices) == []
        assert list(former.runtime.dispatcher.pods) == []
        begun = gpus.begun
        async with gateway(pods, gpus, "b") as owner:
            await owner.serve(1)
            await owner.outputs("w", rows(1))
            assert owner.slice.is_open
        assert gpus.begun == begun + 2  # with the first batch of its process
        assert former.holders() == former.members() == []


@virtually
async def test_no_other_gateway_uses_the_slice_of_a_holder_whose_label_changes():
    """Its own closes it, and the other ends the holder: earlier batches may run in the slice."""
    async with two_groups() as (first, second):
        [moved] = first.holders()
        calls = burst(first, 1) + burst(second, 4)
        await asyncio.sleep(RUN_S / 10)
        first.pods.regroup(moved, "b")
        assert not any(known.is_open for known in first.runtime.dispatcher.slices)
        await asyncio.gather(*calls[1:])
        assert second.slice.percent == 50
        assert first.gpus.most_percent == 100
        assert first.pods.graces_s[moved] is None  # that of the pod
        for call in calls:
            call.cancel()


@virtually
async def test_a_holder_of_a_user_is_no_slice_with_another_label():
    """A gateway ends none that it has not created, says so, and starts a holder of its own."""
    async with gateway(Pods(), Gpus(), "b") as bed:
        name = await bed.holder()
        raw = bed.pods.objects[name]
        del raw["metadata"]["labels"]["app.kubernetes.io/managed-by"]
        plan = raw["metadata"]["annotations"][names.ANNOTATION_PLAN]
        raw["metadata"]["annotations"][names.ANNOTATION_PLAN] = plan.replace('"b"', '"a"')
        bed.pods.set_status(name)
        await asyncio.sleep(10)
        assert not any(known.is_open for known in bed.runtime.dispatcher.slices)
        assert name not in bed.pods.deleted
        assert "delete the pod" in bed.discovery.problems["Pod", "default", name]
        assert len(bed.holders()) == 2
