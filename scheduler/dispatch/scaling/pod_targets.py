"""Pods that a function should have, and how fast their number changes."""

from collections import deque
from math import inf, sqrt

from scheduler.dispatch.pods import Pod, Share
from scheduler.dispatch.scaling.sizing import PodSize

SURPLUS_MS = 30_000.0  # without need, before pods end
DOUBLING_MS = 1_000.0  # in which pods at most double; those of an expected rate start at once
REPLACED_MS = 1_000.0  # between two ends of pods whose share is no longer chosen
BUSY_MIN_PODS = 0.01


class CountLimits:
    """Limits of how fast the number of pods, or slices, changes.

    Attributes:
        expected: number for an expected rate, which may start at once.
    """

    def __init__(self) -> None:
        self.expected = 0
        self._recent: deque[tuple[float, int]] = deque()  # falling needs, by time
        self._doubled_ms, self._doubled_from = -inf, 0

    def allowed(self, wanted: int, existing: int, now_ms: float) -> int:
        """Return the number that may exist now: at most twice that of a second ago."""
        if now_ms - self._doubled_ms >= DOUBLING_MS:
            self._doubled_from, self._doubled_ms = existing, now_ms
        return min(wanted, max(2 * self._doubled_from, self.expected, 1))

    def surplus(self, wanted: int, existing: int, now_ms: float) -> int:
        """Return the number to end: half of those that nothing has needed for `SURPLUS_MS`.

        The other half stays as long again: what the last ones are worth shows when they are gone.
        """
        recent = self._recent
        self._needs(wanted if recent else max(wanted, existing), now_ms)
        while now_ms - recent[0][0] > SURPLUS_MS:
            recent.popleft()
        surplus = max(existing - recent[0][1] + 1, 0) // 2
        if surplus:
            self._needs(existing - surplus, now_ms)
        return surplus

    def _needs(self, number: int, now_ms: float) -> None:
        while self._recent and self._recent[-1][1] <= number:
            self._recent.pop()
        self._recent.append((now_ms, number))


class PodTarget(CountLimits):
    """Pods that a function should have.

    Attributes:
        share: share of each pod.
        configuration: configuration with which the pods are counted.
        rows_per_ms: rate for which the pods are counted.
        sized_rows_per_ms, time_ratio: rate, and time that plans reserve for a run over the
            profile's, for which the share was chosen.
        wanted_pods: pods that the function needs, which may be more than it may have.
        pooled: true if they run in slices.
        is_satisfied: true if the function has the pods that it needs, and none starts.
        failed_starts: number of failures for which no pod of another share was stopped.
    """

    def __init__(
        self,
        size: PodSize,
        share: Share,
        *,
        rows_per_ms: float,
        sized_rows_per_ms: float,
        time_ratio: float,
    ) -> None:
        super().__init__()
        self.share = share
        self.pooled = False
        self.resize(
            size,
            rows_per_ms=rows_per_ms,
            sized_rows_per_ms=sized_rows_per_ms,
            time_ratio=time_ratio,
        )
        self.wanted_pods = 0
        self.is_satisfied = False
        self._replaced_ms = -inf
        self.failed_starts = 0

    def resize(
        self, size: PodSize, *, rows_per_ms: float, sized_rows_per_ms: float, time_ratio: float
    ) -> None:
        """Count pods by a new choice of the same share."""
        self.configuration = size.configuration
        self.rows_per_ms = rows_per_ms
        self.sized_rows_per_ms, self.time_ratio = sized_rows_per_ms, time_ratio

    def matches(self, pod: Pod) -> bool:
        """Return true if a pod has the share that is chosen, and holds it as the others do."""
        return pod.share == self.share and pod.pooled == self.pooled

    def may_replace(self, now_ms: float) -> bool:
        """Return true if a pod of another share may end now, and record that it does."""
        if now_ms - self._replaced_ms < REPLACED_MS:
            return False
        self._replaced_ms = now_ms
        return True

    def reserve_ratio(self, pods: int) -> float:
        """Return the reserve of so many pods over the square root of the busy ones."""
        return (pods - self.busy_pods) / sqrt(max(self.busy_pods, BUSY_MIN_PODS))

    @property
    def busy_pods(self) -> float:
        """Pods that the rate keeps busy on average."""
        return self.rows_per_ms * self.configuration.latency_ms / self.configuration.batch
