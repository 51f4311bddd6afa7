"""Promises: shares of GPUs that filter gave to pods which are not bound yet.

kube-scheduler filters all members of a PodGroup one after another before it binds the first of
them. Without promises each of them would be given the same free share. A promise counts in filter,
prioritize, preempt and the choice of a GPU at bind, and never in the ledger (ADR 49).

It may also filter a pod before the bind call of the last one has come. kube-scheduler's own counts
keep most pods apart then, but not the members of a pool, which request nothing that it counts
by GPU and little that it counts by node. So each of them is a group of its own here (ADR 52).

kube-scheduler does not say whether an attempt failed, so a promise ends with the first of:

- the member is bound or deleted;
- its bind call comes, and no other member of its pass has a promise;
- another pass over the gang binds: with topology constraints, kube-scheduler makes a pass over the
  members for each domain of nodes, and binds the members as one of these passes placed them;
- filter answered a member with an error, which ends the attempt for the whole gang;
- `PASS_S` after the last filter call of the pass, if no member was bound, or `BINDING_S` after the
  first bind.

A pass begins with a member that is filtered again after others were. A member twice in a row is in
the same pass: kube-scheduler tries its nominated node first, then all nodes.
"""

from dataclasses import dataclass, field
from typing import Any

from scheduler.extender.nominations import Nomination
from scheduler.planning.pods import PendingPod, version_of
from scheduler.planning.state import State

PASS_S = 1.0
BINDING_S = 15.0
MEMBERS_MAX = 4_096  # of all passes; then the oldest pass ends
_NAME_MAX = 253  # characters of a PodGroup's name

Gang = tuple[str, str]  # namespace and name of a PodGroup
Group = Gang  # or, for a member of a pool, no namespace and the UID of the pod


@dataclass(frozen=True, slots=True)
class _Promise:
    """A share for a pod of this version."""

    share: Nomination
    pod_version: int


@dataclass(slots=True)
class _Pass:
    """One pass of kube-scheduler over the members of a group.

    Attributes:
        ends_s: end of its promises, on the monotonic clock.
        is_binding: a member was bound.
        members: promises by pod UID, in the order of the filter calls; None: there is none.
    """

    group: Group
    ends_s: float
    is_binding: bool = False
    members: dict[str, _Promise | None] = field(default_factory=dict)


class Promises:
    """Promises to the members of all groups; a process starts without any."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._passes: list[_Pass] = []  # the oldest first

    def begin(self, pod: PendingPod) -> None:
        """Note that a pod is filtered, which may begin a pass over its group."""
        group = _group_of(pod)
        if group is None:
            return
        self._expire()
        current = next((p for p in reversed(self._passes) if p.group == group), None)
        if current is None or _is_repeated(pod.uid, current):
            current = _Pass(group, 0.0)
            self._passes.append(current)
        current.members[pod.uid] = None
        current.ends_s = max(current.ends_s, self._state.monotonic() + PASS_S)
        while self.member_count() > MEMBERS_MAX:
            del self._passes[0]

    def add(self, pod: PendingPod, share: Nomination) -> None:
        """Promise a share to a pod whose filter call is answered now."""
        current = self._pass_of(pod.uid)
        if current is not None:
            current.members[pod.uid] = _Promise(share, version_of(pod.raw))

    def bind(self, uid: str, node: str) -> None:
        """Note that kube-scheduler binds a pod: the pass that promised it this node counts."""
        passes = [pass_ for pass_ in self._passes if pass_.members.get(uid) is not None]
        if not passes:
            return
        chosen = next((p for p in reversed(passes) if _node(p, uid) == node), passes[-1])
        if not chosen.is_binding:
            chosen.is_binding = True
            chosen.ends_s = self._state.monotonic() + BINDING_S
        has_others = any(promise for member, promise in chosen.members.items() if member != uid)
        self._passes = [
            pass_
            for pass_ in self._passes
            if pass_.group != chosen.group or (pass_ is chosen and has_others)
        ]

    def end(self, uid: str) -> None:
        """End all passes over a pod's group of which no member was bound: the attempt failed."""
        current = self._pass_of(uid)
        if current is not None:
            group = current.group
            self._passes = [p for p in self._passes if p.group != group or p.is_binding]

    def clear(self) -> None:
        """End all promises."""
        self._passes.clear()

    def member_count(self) -> int:
        """Return the number of members of all passes."""
        return sum(len(pass_.members) for pass_ in self._passes)

    def against(self, uid: str, *, is_own: bool | None = None) -> list[Nomination]:
        """Return the shares that a pod must not take.

        A member must leave alone what its own pass promised to other members, and not what earlier
        passes did: kube-scheduler has reverted them.

        Args:
            uid: UID of the pod.
            is_own: true for promises to its own group alone, false for those to others alone.
                Default: both.
        """
        if not self._passes:
            return []
        self._expire()
        own = self._pass_of(uid)
        group = None if own is None else own.group
        return [
            promise.share
            for pass_ in self._passes
            if (pass_ is own or pass_.group != group) and is_own in (None, pass_ is own)
            for member, promise in pass_.members.items()
            if promise is not None and member != uid
        ]

    def _pass_of(self, uid: str) -> _Pass | None:
        return next((p for p in reversed(self._passes) if uid in p.members), None)

    def _expire(self) -> None:
        """End what is over."""
        now_s = self._state.monotonic()
        for pass_ in self._passes:
            for uid, promise in pass_.members.items():
                if promise is not None and self._is_over(uid, promise):
                    pass_.members[uid] = None
        self._passes = [
            pass_
            for pass_ in self._passes
            if pass_.ends_s > now_s and (any(pass_.members.values()) or not pass_.is_binding)
        ]

    def _is_over(self, uid: str, promise: _Promise) -> bool:
        """Return true for a pod that is bound, is being bound, or is deleted."""
        state = self._state
        if state.ledger.reservation(uid) is not None:
            return True
        # kube-scheduler may have seen the pod before this process has.
        is_current = 0 < promise.pod_version <= state.pods.version
        return is_current and uid not in state.pods.pending


def _group_of(pod: PendingPod) -> Group | None:
    """Return whom kube-scheduler places together; None for pods without promises."""
    if pod.function_pod is not None and pod.function_pod.is_member:
        return "", pod.uid
    return gang_of(pod)


def gang_of(pod: PendingPod) -> Gang | None:
    """Return the pod group whose pods kube-scheduler places together; None for other pods.

    Only pods with a GPU share of their own count, and so not those of a pool. kube-scheduler's
    filter and preempt calls have the field; pods of the cache do not.
    """
    function_pod = pod.function_pod
    group: Any = (pod.raw.get("spec") or {}).get("schedulingGroup")
    if not isinstance(group, dict) or function_pod is None or function_pod.pool:
        return None
    name = group.get("podGroupName")
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX:
        return None
    return pod.namespace, name


def _is_repeated(uid: str, current: _Pass) -> bool:
    """Return true if a member comes again after others; while members are bound, it is alone."""
    return (
        not current.is_binding and uid in current.members and next(reversed(current.members)) != uid
    )


def _node(pass_: _Pass, uid: str) -> str:
    promise = pass_.members[uid]
    return "" if promise is None else promise.share.node
