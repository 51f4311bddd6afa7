"""Calls that are forwarded to the owner of their shard, when that changes."""

import asyncio
from types import SimpleNamespace

from scheduler.gateway.calls import InferAnswer, InferCall
from scheduler.gateway.replicas.replicated_front import ReplicatedFront
from scheduler.gateway.replicas.shards import shard_of
from tests.virtual_loop import virtually

ANSWER = InferAnswer([], 0.0, 0.0, 1, False)
SHARD = shard_of("n")


class LostOwner:
    """A replica that never answers.

    Args:
        cut: callback of a call that is cut.
    """

    def __init__(self, cut):
        self.has_call = asyncio.Event()
        self._cut = cut

    async def forward(self, call, now_ms):
        self.has_call.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._cut()


class NewOwner:
    """A replica that answers."""

    async def forward(self, call, now_ms):
        return ANSWER


def front_of(peers, owner):
    """Return the front of a replica without shards."""
    loop = asyncio.get_running_loop()
    runtime = SimpleNamespace(now_ms=lambda: 1000 * loop.time())
    owned = SimpleNamespace(serves=lambda namespace: False)
    return ReplicatedFront(runtime, owned, None, SimpleNamespace(peer=peers.get), owner)


@virtually
async def test_the_owner_changes_again_while_a_call_is_cut():
    """A call that is being cut goes to the new owner, and the change reaches whoever reports it."""
    owner = "lost"

    def change():
        nonlocal owner
        owner = "new"
        front.owner_changed(SHARD)

    lost = LostOwner(change)
    front = front_of({"lost": lost, "new": NewOwner()}, lambda shard: owner)
    answer = front.submit(InferCall("n", "w", None, None, 0.0, None))
    await lost.has_call.wait()
    front.owner_changed(SHARD)
    assert await answer is ANSWER
