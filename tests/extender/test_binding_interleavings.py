"""One owner of all Bindings, in all orders of requests and answers: none over-commits a GPU.

Each part of the hand-over is needed: without it, an order is found that over-commits.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from scheduler.cluster.link import LiveCluster
from scheduler.extender import binding
from scheduler.extender.bind_ownership import BindOwnership
from scheduler.extender.binding import Binder
from scheduler.extender.binding_voider import BindingVoider
from tests.extender.interleavings import OvercommitError, explore, play

RANDOM_RUNS = 100


def draw(faults: int, seeds: range) -> None:
    """Play sequences of random choices, with faults at few moments."""
    for seed in seeds:
        random = Random(seed)
        play(random.randrange, faults, binds=2, is_calm=lambda r=random: r.random() < 0.8)


def test_no_order_of_requests_overcommits() -> None:
    """Two processes bind two pods of 60 % to one GPU, each as if it were alone."""
    assert explore(faults=0, binds=1, pauses=0) > 50


@pytest.mark.slow
def test_no_order_with_one_fault_overcommits() -> None:
    """A request arrives late, a process restarts, a pod or a cache changes."""
    assert explore(faults=1, binds=1, pauses=0) > 1_000


@pytest.mark.slow
def test_random_orders_with_several_faults_do_not_overcommit() -> None:
    """The faults meet one another."""
    draw(4, range(RANDOM_RUNS))


def bind_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    original = binding.Binding

    def versionless(*fields: Any) -> Any:
        return original(*fields[:5])

    monkeypatch.setattr(binding, "Binding", versionless)


def void_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take_over(self: BindingVoider) -> float:
        await self._link.relist_pods()
        return 0.0

    monkeypatch.setattr(BindingVoider, "take_over", take_over)


def void_without_precondition(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get_pod(self: LiveCluster, namespace: str, name: str, *_: Any, **limits: Any) -> Any:
        return await self.get_pod(namespace, name, **limits)

    monkeypatch.setattr(LiveCluster, "void_bindings", get_pod)


def own_whatever_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BindOwnership, "period", property(lambda _: 0))


def retry_whoever_owns(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Binder._bind_version

    async def bind_version(self: Binder, *args: Any, may_have_changed: bool) -> Any:
        if may_have_changed:
            return await original(self, *args, may_have_changed=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._ownership, "require", lambda: None)
            return await original(self, *args, may_have_changed=False)

    monkeypatch.setattr(Binder, "_bind_version", bind_version)


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(bind_any_version, marks=pytest.mark.slow),
        void_nothing,
        pytest.param(void_without_precondition, marks=pytest.mark.slow),
        own_whatever_others_do,
        pytest.param(retry_whoever_owns, marks=pytest.mark.slow),
    ],
)
def test_each_part_is_needed(
    monkeypatch: pytest.MonkeyPatch, mutation: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Without it, some order over-commits the GPU."""
    mutation(monkeypatch)
    with pytest.raises(OvercommitError):
        draw(3, range(10 * RANDOM_RUNS))
