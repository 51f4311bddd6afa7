"""Slices of a dispatcher, and the pooled pods in each."""

from collections.abc import Iterable
from math import inf

from scheduler.dispatch.pods import Pod
from scheduler.dispatch.slices import Slice, SliceKey


class SliceTable:
    """Slices by namespace and GPU.

    A slice that was removed stays in the account without percent as long as it has pods: what still
    runs on a GPU counts in the next slice there.

    Attributes:
        opens_at_ms: when the next slice opens; inf: none is to open.
    """

    def __init__(self) -> None:
        self._slices: dict[SliceKey, Slice] = {}
        self._members: dict[SliceKey, dict[Pod, None]] = {}
        self.opens_at_ms = inf

    def all(self) -> list[Slice]:
        """Return the slices that the pools hold."""
        return [known for known in self._slices.values() if known.percent > 0]

    def members(self, key: SliceKey) -> Iterable[Pod]:
        """Return the pods in a slice."""
        return self._members.get(key, ())

    def set(self, new: Slice, now_ms: float) -> Iterable[Pod]:
        """Add or replace a slice; return its pods."""
        known = self._slices.get(new.key)
        if known is not None and known is not new:
            new.succeed(known)
        self._slices[new.key] = new
        members = self._members.setdefault(new.key, {})
        for pod in members:
            pod.slice = new
        new.is_open = new.open_from_ms <= now_ms
        self._schedule()
        return members

    def close(self, key: SliceKey) -> Iterable[Pod]:
        """Let no batch begin in a slice; return its pods."""
        known = self._slices.get(key)
        if known is None:
            return ()
        known.is_open, known.is_closed, known.open_from_ms = False, True, inf
        self._schedule()
        return self._members[key]

    def remove(self, key: SliceKey) -> Iterable[Pod]:
        """Remove a slice; return the pods that were in it."""
        members = self.close(key)
        if (known := self._slices.get(key)) is not None:
            known.percent = known.cpus = 0
            self._forget(known)
        return members

    def join(self, pod: Pod) -> None:
        """Add a pooled pod to the slice of its GPU, which may be set later."""
        key = pod.function[0], pod.gpu
        known = self._slices.get(key)
        if known is None:
            known = self._slices[key] = Slice(*key, pod.node, 0, 0, open_from_ms=inf)
            known.is_closed = True
        pod.slice = known
        self._members.setdefault(key, {})[pod] = None

    def leave(self, pod: Pod) -> None:
        """Remove a pod; its tokens are given back when its runs end."""
        if pod.slice is not None:
            self._members[pod.slice.key].pop(pod, None)
            self._forget(pod.slice)

    def open_due(self, now_ms: float) -> list[Pod]:
        """Open the slices whose time has come; return their pods."""
        pods: list[Pod] = []
        if self.opens_at_ms <= now_ms:
            for key, known in self._slices.items():
                if not known.is_open and known.open_from_ms <= now_ms:
                    known.is_open = True
                    pods += self._members[key]
            self._schedule()
        return pods

    def _forget(self, known: Slice) -> None:
        """Forget a slice without percent, pods and runs."""
        key = known.key
        if not known.percent and not self._members.get(key) and known.is_idle:
            del self._slices[key]
            self._members.pop(key, None)

    def _schedule(self) -> None:
        closed = (known.open_from_ms for known in self._slices.values() if not known.is_open)
        self.opens_at_ms = min(closed, default=inf)
