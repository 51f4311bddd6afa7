"""The fence in all orders of requests and answers: no order over-commits a GPU.

Each part of the fence is needed: without it, an order is found that over-commits.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from scheduler.cluster.leases import LeaseClient
from scheduler.extender import binding
from scheduler.extender.fence import Fence
from tests.extender.interleavings import OvercommitError, explore, play

RANDOM_RUNS = 100


def draw(faults: int, seeds: range) -> None:
    """Play sequences of random choices."""
    for seed in seeds:
        play(Random(seed).randrange, faults)


def test_no_order_of_requests_overcommits() -> None:
    """Two processes bind two pods of 60 % to one GPU, each as if it were alone."""
    assert explore(faults=0) > 50


@pytest.mark.slow
def test_no_order_with_one_fault_overcommits() -> None:
    """A request is given up and arrives late, a process restarts, a pod or a cache changes."""
    assert explore(faults=1, binds=1) > 1_000


def test_random_orders_with_several_faults_do_not_overcommit() -> None:
    """The faults meet one another."""
    draw(4, range(RANDOM_RUNS))


def write_over_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LeaseClient.write

    async def write(self: LeaseClient, name: str, **fields: Any) -> Any:
        stored = await self.read(name)
        version = None if stored is None else stored.version
        return await original(self, name, **{**fields, "version": version})

    monkeypatch.setattr(LeaseClient, "write", write)


def bind_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    original = binding.Binding

    def versionless(*fields: Any) -> Any:
        return original(*fields[:5])

    monkeypatch.setattr(binding, "Binding", versionless)


def drop_unknown_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fence, "_is_void", lambda *_: True)


def record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def record(*_: Any) -> None:
        return None

    monkeypatch.setattr(Fence, "record", record)


@pytest.mark.parametrize(
    "mutation", [write_over_any_version, bind_any_version, drop_unknown_shares, record_nothing]
)
def test_each_part_is_needed(
    monkeypatch: pytest.MonkeyPatch, mutation: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Without it, some order over-commits the GPU."""
    mutation(monkeypatch)
    with pytest.raises(OvercommitError):
        draw(3, range(10 * RANDOM_RUNS))
