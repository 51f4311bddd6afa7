"""Slices of the dispatcher: open while a holder's grace period covers a run that begins now.

The slice of a GPU is the sum of its holders there. A holder that somebody deletes, even by force,
keeps its percent reserved for its grace period (ADR 43). So a batch may begin as long as the API
server has last known the holder so lately that the longest run would end within that time.
"""

from collections.abc import Iterable, Sequence
from math import inf

from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.slices import Slice, SliceKey
from scheduler.gateway.run_times import longest_run_s
from scheduler.gateway.scaling.slice_fence import SliceFence
from scheduler.gateway.scaling.slice_holder import SliceHolder
from scheduler.gateway.serving.runtime import Runtime
from scheduler.model.documents import FunctionProfile

MARGIN_S = 2.0  # between a run's end and that of its holder's grace period


class OpenSlices:
    """The slices that the dispatcher has, and until when batches may begin in them.

    Args:
        runtime: runtime that gets the slices.
        fence: fence of the pods in the slices, and the clock of their ends.
        grace_max_s: longest time for which the share of a vanished pod stays reserved.
    """

    def __init__(self, runtime: Runtime, fence: SliceFence, grace_max_s: float) -> None:
        self._runtime = runtime
        self._fence = fence
        self._grace_max_s = grace_max_s
        self._began_ms = runtime.now_ms()
        self._taken_over_ms: dict[str, float] = {}
        self._run_s: dict[FunctionKey, float] = {}
        self._slices: dict[SliceKey, Slice] = {}

    def all(self) -> Iterable[Slice]:
        """Return the slices, open or closed."""
        return self._slices.values()

    def get(self, key: SliceKey) -> Slice | None:
        """Return the slice of a GPU; None without one."""
        return self._slices.get(key)

    # -- runs ------------------------------------------------------------------------------------

    def set_function(self, function: FunctionKey, profile: FunctionProfile) -> None:
        """Add or change a function whose pods run in slices."""
        self._run_s[function] = longest_run_s(profile)

    def remove_function(self, function: FunctionKey) -> None:
        """Remove a function."""
        self._run_s.pop(function, None)

    def take_over(self, namespace: str, *, is_clean: bool) -> None:
        """Serve a namespace from now on; ``is_clean``: nothing runs on its pods.

        Without this call, batches that began before this process may run.
        """
        self._taken_over_ms[namespace] = -inf if is_clean else self._runtime.now_ms()

    def settled_ms(self, holder: SliceHolder) -> float:
        """Return when the last batch of an earlier process in a holder's slice has ended."""
        taken_over_ms = self._taken_over_ms.get(holder.namespace, self._began_ms)
        if holder.start is not None and holder.since_ms >= taken_over_ms:
            return -inf
        return taken_over_ms + 1000 * self._longest_run_s(holder.namespace)

    def _longest_run_s(self, namespace: str) -> float:
        runs_s = (run_s for key, run_s in self._run_s.items() if key[0] == namespace)
        return max(runs_s, default=0.0)

    # -- holders ---------------------------------------------------------------------------------

    def update(self, key: SliceKey, live: Sequence[SliceHolder]) -> bool:
        """Set, close or remove the slice of a GPU; return true if it is open, or will be.

        Args:
            key: namespace and GPU.
            live: holders on the GPU that run and that nobody has deleted.
        """
        now_s = self._fence.clock_s()
        certain = [holder for holder in live if now_s < self._end_s(holder)]
        self._fence.set_end(key, min(map(self._end_s, certain), default=-inf))
        gpu_slice = self._slices.get(key)
        if certain:
            new = self._slice(key, certain)
            if gpu_slice is None or _figures(gpu_slice) != _figures(new):
                self._slices[key] = new
                self._runtime.set_slice(new)
            return True
        if gpu_slice is not None:
            if gpu_slice.open_from_ms < inf:
                self._runtime.close_slice(*key)
            if not live and gpu_slice.is_idle:
                del self._slices[key]
                self._runtime.remove_slice(*key)
        return False

    def _end_s(self, holder: SliceHolder) -> float:
        """Return the time until which a batch may begin."""
        assert holder.pod is not None  # noqa: S101 - it is live
        grace_s = min(holder.pod.grace_s, self._grace_max_s)
        return holder.confirmed_s + grace_s - MARGIN_S - self._longest_run_s(holder.namespace)

    def _slice(self, key: SliceKey, holders: Sequence[SliceHolder]) -> Slice:
        pods = [holder.pod for holder in holders if holder.pod is not None]
        return Slice(
            *key,
            pods[0].node,
            sum(pod.percent for pod in pods),
            sum(pod.cpus for pod in pods),
            gpu_model=pods[0].gpu_model,
            # A pool has one slice of a GPU at most: no earlier batch runs in one that begins here.
            open_from_ms=max(map(self.settled_ms, holders)),
        )


def _figures(gpu_slice: Slice) -> tuple[int, int, float]:
    return gpu_slice.percent, gpu_slice.cpus, gpu_slice.open_from_ms
