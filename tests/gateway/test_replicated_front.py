"""Calls that are forwarded to the owner of their shard, when that changes."""

import asyncio
from types import SimpleNamespace

import pytest

from scheduler.gateway.calls import CallError, CallMovedError, InferAnswer, InferCall
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


class LeavingOwner:
    """A replica that passes its calls on after a minute."""

    async def forward(self, call, now_ms):
        await asyncio.sleep(60)
        raise CallMovedError


class NewOwner:
    """A replica that answers."""

    async def forward(self, call, now_ms):
        return ANSWER


def front_of(peers, owner, on_refused=lambda _: None):
    """Return the front of a replica without shards."""
    loop = asyncio.get_running_loop()
    runtime = SimpleNamespace(now_ms=lambda: 1000 * loop.time())
    owned = SimpleNamespace(serves=lambda namespace: False)
    peers = SimpleNamespace(peer=peers.get)
    return ReplicatedFront(runtime, owned, None, peers, owner, on_refused=on_refused)


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


@virtually
async def test_a_call_waits_for_a_new_owner_however_old_it_is():
    """The time at the former owner does not count."""
    owners = ["new", "", "leaving"]
    peers = {"leaving": LeavingOwner(), "new": NewOwner()}
    front = front_of(peers, lambda shard: owners[-1])
    loop = asyncio.get_running_loop()
    loop.call_later(60, owners.pop)
    loop.call_later(65, owners.pop)
    assert await front.submit(InferCall("n", "w", None, None, 0.0, None)) is ANSWER


@virtually
async def test_a_call_without_an_owner_is_refused():
    """The text says for how long there was none, and the refusals are counted."""
    refused = []
    front = front_of({}, lambda shard: "", refused.append)
    with pytest.raises(CallError, match="has served namespace n for 10 s"):
        await front.submit(InferCall("n", "w", None, None, 0.0, None))
    with pytest.raises(CallError, match="limit of 500 ms"):
        await front.submit(InferCall("n", "w", None, None, front.now_ms(), 500.0))
    assert refused == [503, 504]
