"""Hand-overs of a shard: clean only if nothing runs on its pods, or may run."""

import asyncio
from types import SimpleNamespace

import pytest

from scheduler.gateway.replicas.dispatch_fence import DispatchFence
from scheduler.gateway.replicas.owned_shards import OwnedShards
from tests.gateway.test_shard_gate import SHARD, Bed
from tests.virtual_loop import virtually


class Timed:
    """A model server whose batches take the times that a test gives.

    Attributes:
        running: number of batches that run.
    """

    binary = True
    ready = metadata = close_idle = close = None

    def __init__(self, *times_s):
        self._times_s = list(times_s)
        self.running = 0

    async def infer(self, model, ranges, *, timeout_ms, headers=()):
        self.running += 1
        await asyncio.sleep(self._times_s.pop(0))
        self.running -= 1
        return ()


def owned_shards(bed, server):
    """Return the shards of a replica with one pod, and a client of the pod."""
    fence = DispatchFence(lambda _: server, lambda _: True)
    owned = OwnedShards(SimpleNamespace(now_ms=None), bed.gate, fence)
    return owned, fence.connect(bed.pod)


@pytest.mark.parametrize(("next_s", "is_clean"), [(1.0, True), (10.0, False)])
@virtually
async def test_a_batch_that_begins_with_the_end_of_the_last_one_is_waited_for(next_s, is_clean):
    """A pod's first batch may have waited for the tokens of the last; a long one is not clean."""
    server = Timed(0.5, next_s)
    owned, client = owned_shards(Bed(), server)
    owned.acquired(SHARD, hold=False)

    async def one_after_the_other():
        await client.infer("f", [], timeout_ms=None)
        await client.infer("f", [], timeout_ms=None)

    batches = asyncio.create_task(one_after_the_other())
    await asyncio.sleep(0.1)
    assert await owned.hand_over(SHARD) is is_clean
    assert (server.running == 0) is is_clean
    await batches


@pytest.mark.parametrize(("held_s", "is_clean"), [(1.0, False), (10.0, True)])
@virtually
async def test_a_former_owners_runs_are_not_clean(held_s, is_clean):
    """The next owner waits for them, too, if they may not have ended."""
    owned, _ = owned_shards(Bed(latency_ms=5_000.0), Timed())
    owned.acquired(SHARD, hold=True)
    await asyncio.sleep(held_s)
    assert await owned.hand_over(SHARD) is is_clean
