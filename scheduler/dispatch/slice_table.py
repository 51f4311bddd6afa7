"""Slices of a dispatcher, and the pooled pods in each."""

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf

from scheduler.dispatch.pods import Pod
from scheduler.dispatch.slices import Slice, SliceKey


class SliceTable:
    """Slices by namespace and GPU.

    A slice that was removed stays in the account without percent as long as it has pods: what still
    runs on a GPU counts in the next slice there.

    Attributes:
        changes_at_ms: time at which the next slice opens, or gets tokens back from a run that
            failed; inf: nothing is due.
    """

    def __init__(self) -> None:
        self._slices: dict[SliceKey, Slice] = {}
        self._members: dict[SliceKey, dict[Pod, None]] = {}
        # Batches without an answer whose process may go on: until when, slice, and name of the pod.
        self._later_ends: list[tuple[float, SliceKey, str]] = []
        self.changes_at_ms = inf

    def all(self) -> list[Slice]:
        """Return the slices that the pools hold."""
        return [gpu_slice for gpu_slice in self._slices.values() if gpu_slice.percent > 0]

    def get(self, key: SliceKey) -> Slice | None:
        """Return the slice that a pool holds; None without one."""
        gpu_slice = self._slices.get(key)
        return gpu_slice if gpu_slice is not None and gpu_slice.percent > 0 else None

    def set(self, new: Slice, now_ms: float) -> Iterable[Pod]:
        """Add or replace a slice; return its pods."""
        gpu_slice = self._slices.get(new.key)
        if gpu_slice is not None and gpu_slice is not new:
            new.succeed(gpu_slice)
        self._slices[new.key] = new
        members = self._members.setdefault(new.key, {})
        for pod in members:
            pod.slice = new
        new.is_open = new.open_from_ms <= now_ms
        self._schedule()
        return members

    def close(self, key: SliceKey) -> Iterable[Pod]:
        """Let no batch begin in a slice; return its pods."""
        gpu_slice = self._slices.get(key)
        if gpu_slice is None:
            return ()
        gpu_slice.is_open, gpu_slice.is_closed, gpu_slice.open_from_ms = False, True, inf
        self._schedule()
        return self._members[key]

    def remove(self, key: SliceKey) -> Iterable[Pod]:
        """Remove a slice; return the pods that were in it."""
        members = self.close(key)
        if (gpu_slice := self._slices.get(key)) is not None:
            gpu_slice.percent = gpu_slice.cpus = 0
            self._forget(key)
        return members

    def join(self, pod: Pod) -> None:
        """Add a pooled pod to the slice of its GPU, which may be set later."""
        key = pod.function[0], pod.gpu
        gpu_slice = self._slices.get(key)
        if gpu_slice is None:
            gpu_slice = self._slices[key] = Slice(*key, pod.node, 0, 0, open_from_ms=inf)
            gpu_slice.is_closed = True
        pod.slice = gpu_slice
        self._members.setdefault(key, {})[pod] = None

    def leave(self, pod: Pod) -> None:
        """Remove a pod; the tokens of its batches stay until each is given back."""
        if pod.slice is not None:
            key = pod.slice.key
            self._members[key].pop(pod, None)
            self._forget(key)

    def take(
        self, key: SliceKey, pod: str, percent: int, cpus: int, end_ms: float
    ) -> Iterable[Pod]:
        """Take a pod's tokens for a batch; return the pods of the slice."""
        self._slices[key].take(pod, percent, cpus, end_ms)
        return self._members[key]

    def give_back(self, key: SliceKey, pod: str) -> Iterable[Pod]:
        """End a batch of a pod in a slice; return the pods that may use its tokens."""
        self._slices[key].give_back(pod)
        members = self._members[key]
        self._forget(key)
        return members

    def give_back_at(self, key: SliceKey, pod: str, end_ms: float) -> None:
        """End a batch at a time to come: nobody knows what the pod's process does until then."""
        heappush(self._later_ends, (end_ms, key, pod))
        self._schedule()

    def change(self, now_ms: float) -> list[Pod]:
        """Open the slices, and give back the tokens, whose time has come; return their pods."""
        pods: list[Pod] = []
        if self.changes_at_ms > now_ms:
            return pods
        for key, gpu_slice in self._slices.items():
            if not gpu_slice.is_open and gpu_slice.open_from_ms <= now_ms:
                gpu_slice.is_open = True
                pods += self._members[key]
        while self._later_ends and self._later_ends[0][0] <= now_ms:
            pods += self.give_back(*heappop(self._later_ends)[1:])
        self._schedule()
        return pods

    def _forget(self, key: SliceKey) -> None:
        """Forget a slice without percent, pods and runs."""
        gpu_slice = self._slices.get(key)
        if gpu_slice is None or gpu_slice.percent or self._members[key]:
            return
        if gpu_slice.is_idle:
            del self._slices[key], self._members[key]

    def _schedule(self) -> None:
        times_ms = [slice_.open_from_ms for slice_ in self._slices.values() if not slice_.is_open]
        times_ms += [end_ms for end_ms, *_ in self._later_ends[:1]]
        self.changes_at_ms = min(times_ms, default=inf)
