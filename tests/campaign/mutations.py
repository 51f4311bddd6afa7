"""Checks of the extender, each with a way to remove it and a run that over-commits without it.

Most are found by a drawn run. Two need a coincidence that is too rare to be drawn: their incidents
are written down. Two more checks have unit tests alone, because no run reaches them: placement has
looked at the memory before the ledger does (tests/ledger/test_bindings_under_way.py), and this API
server answers no 409 for a pod that has not changed (tests/cluster/test_void_bindings.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest

from scheduler.extender.bind_ownership import BindOwnership
from scheduler.extender.binding_voider import BindingVoider
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.grant import Grant
from scheduler.model.pod import FunctionPod
from scheduler.model.pools import PoolName
from scheduler.placement.members import GpuSlice
from scheduler.planning import handlers
from scheduler.planning.handlers import PodHandler
from scheduler.planning.pods import version_of
from tests.campaign.incidents import Incident, draw_incidents
from tests.campaign.run import Verdict, run_incidents

ENDED = ("Succeeded", "Failed")
Remove = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A removed check.

    Attributes:
        remove: removes it.
        seed: seed of a run that over-commits without it.
        incidents: incidents of that run; empty: those of its seed.
        active: number of active replicas in that run.
    """

    remove: Remove
    seed: int
    incidents: Sequence[Incident] = ()
    active: int = 1

    def row(self, check: str) -> str:
        """Return the row of the table in ``docs/testing.md``."""
        incidents = "written down" if self.incidents else f"seed {self.seed}"
        return f"| {check} | {incidents} | {self.active} |"

    def run(self) -> Verdict:
        """Run the seed or the incidents."""
        incidents = self.incidents or draw_incidents(self.seed)
        return run_incidents(self.seed, incidents, active=self.active)


def end_terminating(patch: pytest.MonkeyPatch) -> None:
    observe = PodHandler._observe

    def observe_ended(self: PodHandler, raw: Any, *, live: bool) -> None:
        if raw["metadata"].get("deletionTimestamp"):
            raw = raw | {"status": {"phase": "Failed"}}
        observe(self, raw, live=live)

    patch.setattr(PodHandler, "_observe", observe_ended)


def release_vanished(patch: pytest.MonkeyPatch) -> None:
    def vanish(self: PodHandler, uid: str) -> None:
        self.pending.pop(uid, None)
        self._tracker.remove(uid, self._clock())
        self._release(uid)

    patch.setattr(PodHandler, "vanish", vanish)


def withdraw_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    def withdraw(self: PodHandler, assumed: Reservation) -> None:
        self._ledger.withdraw(assumed)

    patch.setattr(PodHandler, "vanish_unconfirmed", withdraw)


def release_on_lost_node(patch: pytest.MonkeyPatch) -> None:
    remove_node = Ledger.remove_node

    def remove(self: Ledger, name: str) -> None:
        for held in self.on_node(name):
            self._release(held.uid)
        remove_node(self, name)

    patch.setattr(Ledger, "remove_node", remove)


def void_by_cache(patch: pytest.MonkeyPatch) -> None:
    async def take_over(self: BindingVoider) -> float:
        for pod in list(self._state.pods.pending.values()):
            await self.void(pod.namespace, pod.name, pod.uid, version_of(pod.raw))
        return -inf

    patch.setattr(BindingVoider, "take_over", take_over)


def void_nothing(patch: pytest.MonkeyPatch) -> None:
    async def void_all(*_: Any) -> list[str]:
        return []

    patch.setattr(BindingVoider, "_void_all", void_all)


def bind_at_once(patch: pytest.MonkeyPatch) -> None:
    take_over = BindingVoider.take_over

    async def take_over_at_once(self: BindingVoider) -> float:
        await take_over(self)
        return -inf

    patch.setattr(BindingVoider, "take_over", take_over_at_once)


def trust_the_watch(patch: pytest.MonkeyPatch) -> None:
    async def has_watched(*_: Any) -> bool:
        return True

    patch.setattr(BindingVoider, "_has_watched", has_watched)


def own_whatever_others_do(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BindOwnership, "period", property(lambda _: 0))


def look_at_the_lease_once(patch: pytest.MonkeyPatch) -> None:
    ensure, require = BindOwnership.ensure, BindOwnership.require

    async def ensure_and_require(self: BindOwnership, timeout_s: float) -> None:
        await ensure(self, timeout_s)
        require(self)

    patch.setattr(BindOwnership, "ensure", ensure_and_require)
    patch.setattr(BindOwnership, "require", lambda _: None)


def believe_any_phase(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handlers, "has_ended", lambda raw: raw["status"].get("phase") in ENDED)


def release_absent(patch: pytest.MonkeyPatch) -> None:
    replace_all = PodHandler.replace

    def replace_and_release(self: PodHandler, items: Any) -> None:
        before = set(self._ending_s)
        replace_all(self, items)
        for uid in self._ending_s.keys() - before:
            self._release(uid)

    patch.setattr(PodHandler, "replace", replace_and_release)


def free_a_slice_at_once(patch: pytest.MonkeyPatch) -> None:
    keep = PodHandler._keep_for_grace

    def keep_others(self: PodHandler, reservation: Reservation) -> None:
        if reservation.pool == "holder":
            self._release(reservation.uid)
        else:
            keep(self, reservation)

    patch.setattr(PodHandler, "_keep_for_grace", keep_others)


def ask_no_slice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GpuSlice, "problem", lambda *_: "")


def know_no_groups(patch: pytest.MonkeyPatch) -> None:
    for owner in (FunctionPod, Reservation):
        patch.setattr(owner, "pool_name", property(lambda self: PoolName(self.namespace)))


def count_no_memory_of_members(patch: pytest.MonkeyPatch) -> None:
    with_grant = Reservation.with_grant

    def without_memory(self: Reservation, grant: Grant) -> Reservation:
        reservation = with_grant(self, grant)
        is_member = reservation.pool == "member"
        return replace(reservation, memory_mib=0) if is_member else reservation

    patch.setattr(Reservation, "with_grant", without_memory)


def _create(at_s: float, pod: str, function: str = "most") -> Incident:
    details = {"pod": pod, "function": function, "priority": 0, "grace_s": 30}
    return Incident(at_s, "create", details)


def _request(at_s: float, replica: str, verb: str, effect: str, **details: Any) -> Incident:
    fault = {"replica": replica, "verb": verb, "effect": effect, "seconds": 0.0, "times": 1}
    return Incident(at_s, "request", {**fault, "status": 503, **details})


ONE_GPU = 9  # a seed with one node of one GPU
# A dies while its Binding of p1 is under way, and nothing else changes p1. B binds p2 in its place.
LATE_BINDING = (
    _create(1.0, "p0", "tenth"),
    _request(5.0, "a", "bind", "late", seconds=40.0),
    Incident(5.0, "lose_notes", {"replica": "b", "seconds": 120.0}),
    _create(5.01, "p1"),
    Incident(5.2, "crash", {"replica": "a", "seconds": 0.5}),
    _request(6.0, "b", "bind", "unsent", times=6),
    Incident(26.0, "relabel", {"pod": "p0"}),
    _create(36.0, "p2"),
)
# A's machine is suspended in a bind call, which reads p1: its watch is late. Its deadline is of the
# monotonic clock, which stands still. B binds p2 meanwhile, and changes p1 no more before the read.
SUSPENDED_BIND = (
    _create(1.0, "p0", "tenth"),
    Incident(4.0, "slow_watch", {"replica": "a", "resource": "pods", "seconds": 70.0}),
    _request(4.5, "a", "read", "late", seconds=30.0),
    Incident(4.9, "lose_notes", {"replica": "b", "seconds": 120.0}),
    _create(5.0, "p1"),
    Incident(5.1, "suspend", {"replica": "a", "seconds": 45.0}),
    _request(5.1, "b", "bind", "unsent", times=6),
    Incident(26.0, "relabel", {"pod": "p0"}),
    _create(28.0, "p2"),
)
# A batch of the member may run in the slice that is gone, and "most" has 60 % of the only GPU.
VANISHED_SLICE = (
    Incident(1.0, "hold", {"pod": "h0", "percent": 60, "priority": 0, "group": ""}),
    Incident(2.0, "join", {"pod": "m0", "function": "half", "priority": 0, "group": ""}),
    Incident(40.0, "force_delete", {"pod": "h0"}),
    _create(40.5, "r0"),
)
SMALL_SLICE = (
    Incident(1.0, "hold", {"pod": "h0", "percent": 20, "priority": 0, "group": ""}),
    Incident(2.0, "join", {"pod": "m0", "function": "half", "priority": 0, "group": ""}),
)
FULL_SLICE = (
    Incident(1.0, "hold", {"pod": "h0", "percent": 20, "priority": 0, "group": ""}),
    Incident(2.0, "join", {"pod": "m0", "function": "wide", "priority": 0, "group": ""}),
    Incident(3.0, "join", {"pod": "m1", "function": "wide", "priority": 0, "group": ""}),
)
FOREIGN_SLICE = (
    Incident(1.0, "hold", {"pod": "h0", "percent": 60, "priority": 0, "group": "a"}),
    Incident(2.0, "join", {"pod": "m0", "function": "half", "priority": 0, "group": ""}),
)
MUTATIONS = {
    "a terminating pod keeps its share": Mutation(end_terminating, 16),
    "a vanished pod keeps its share": Mutation(release_vanished, 0),
    "a pod that a list lacks keeps its share": Mutation(release_absent, 324),
    "a pod that vanished before its Binding's outcome was read keeps its share": Mutation(
        withdraw_unconfirmed, 61, active=2
    ),
    "a phase is no end while containers run": Mutation(believe_any_phase, 59),
    "a lost node keeps its reservations": Mutation(release_on_lost_node, 30),
    "an owner lists all pods": Mutation(void_by_cache, 61),
    "an owner makes earlier Bindings void": Mutation(void_nothing, ONE_GPU, LATE_BINDING),
    "an owner waits for its watch": Mutation(trust_the_watch, 61),
    "an owner waits for containers that it cannot know": Mutation(bind_at_once, 70),
    "one process binds at a time": Mutation(own_whatever_others_do, 8, active=2),
    "a bind call looks at the Lease before it reserves": Mutation(
        look_at_the_lease_once, ONE_GPU, SUSPENDED_BIND
    ),
    "a vanished holder keeps its share": Mutation(free_a_slice_at_once, ONE_GPU, VANISHED_SLICE),
    "a member has a slice of its size": Mutation(ask_no_slice, ONE_GPU, SMALL_SLICE),
    "a member has a slice of its group": Mutation(know_no_groups, ONE_GPU, FOREIGN_SLICE),
    "a member has memory": Mutation(count_no_memory_of_members, ONE_GPU, FULL_SLICE),
}
