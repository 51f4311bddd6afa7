"""Constant-memory aggregates of a run: sums, histograms, and the utilisation over time."""

from collections.abc import Sequence
from typing import Any, Protocol

from workbench.simulation.result import BINS, Latency, Phases, WorkflowResult, bin_of

_BUCKETS_MAX = 512
_BUCKET_MS = 250.0


class UtilisationTrace:
    """Held ratio of a capacity over time, in buckets whose width doubles when they are too many."""

    __slots__ = ("_area", "_capacity", "_edge_ms", "_last_ms", "bucket_ms", "buckets", "held")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.held = 0
        self.bucket_ms = _BUCKET_MS
        self.buckets: list[float] = []  # means of those that are over
        self._area = 0.0  # held x ms in the bucket that is not
        self._last_ms = 0.0
        self._edge_ms = _BUCKET_MS

    def add(self, now_ms: float, amount: int) -> None:
        """Hold so much in addition from now on."""
        while now_ms >= self._edge_ms:
            self._close()
        self._area += self.held * (now_ms - self._last_ms)
        self._last_ms = now_ms
        self.held += amount

    def until(self, now_ms: float) -> tuple[float, ...]:
        """Return the held ratio in each bucket, the last one until now."""
        self.add(now_ms, 0)
        begin_ms = self._edge_ms - self.bucket_ms
        last = [self._area / (now_ms - begin_ms)] if now_ms > begin_ms else []
        return tuple(mean / self._capacity for mean in [*self.buckets, *last])

    def _close(self) -> None:
        self._area += self.held * (self._edge_ms - self._last_ms)
        self.buckets.append(self._area / self.bucket_ms)
        self._area = 0.0
        self._last_ms = self._edge_ms
        if len(self.buckets) == _BUCKETS_MAX:
            self.buckets = [
                (a + b) / 2 for a, b in zip(self.buckets[::2], self.buckets[1::2], strict=True)
            ]
            self.bucket_ms *= 2
        self._edge_ms += self.bucket_ms


class EndedJob(Protocol):
    """Last job of a request, with the phases of its longest chain of stages."""

    queue_ms: float
    start_ms: float
    transfer_ms: float
    execute_ms: float


class Tally:
    """Outcomes of the requests of one workflow."""

    __slots__ = (
        "cost_dollars",
        "counts",
        "dropped",
        "execute_ms",
        "hits",
        "max_ratio",
        "misses",
        "queue_ms",
        "ratio_sum",
        "slo_ms",
        "start_ms",
        "transfer_ms",
    )

    def __init__(self, slo_ms: float) -> None:
        self.slo_ms = slo_ms
        self.hits = self.misses = self.dropped = 0
        self.cost_dollars = 0.0
        self.counts = [0] * BINS
        self.ratio_sum = 0.0
        self.max_ratio = 0.0
        self.queue_ms = self.start_ms = self.transfer_ms = self.execute_ms = 0.0

    def end(self, job: EndedJob, latency_ms: float) -> bool:
        """Count a request that ended with this job; return true when it met its SLO."""
        ratio = latency_ms / self.slo_ms
        self.counts[bin_of(ratio)] += 1
        self.ratio_sum += ratio
        self.max_ratio = max(self.max_ratio, ratio)
        if latency_ms <= self.slo_ms:
            self.hits += 1
            return True
        self.misses += 1
        self.queue_ms += job.queue_ms
        self.start_ms += job.start_ms
        self.transfer_ms += job.transfer_ms
        self.execute_ms += job.execute_ms
        return False


def workflow_result(key: tuple[str, str], tally: Tally) -> WorkflowResult:
    """Return the result of one workflow."""
    return WorkflowResult(namespace=key[0], name=key[1], slo_ms=tally.slo_ms, **counts([tally]))


def counts(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the fields of `Counts` over several workflows."""
    hits = sum(tally.hits for tally in tallies)
    misses = sum(tally.misses for tally in tallies)
    dropped = sum(tally.dropped for tally in tallies)
    ended = hits + misses
    return {
        "requests": ended + dropped,
        "hits": hits,
        "misses": misses,
        "dropped": dropped,
        "cost_dollars": sum(tally.cost_dollars for tally in tallies),
        "latency": Latency(
            tuple(map(sum, zip(*(tally.counts for tally in tallies), strict=True))),
            sum(tally.ratio_sum for tally in tallies) / ended if ended else 0.0,
            max((tally.max_ratio for tally in tallies), default=0.0),
        ),
        "missed": Phases(
            sum(tally.queue_ms for tally in tallies),
            sum(tally.start_ms for tally in tallies),
            sum(tally.transfer_ms for tally in tallies),
            sum(tally.execute_ms for tally in tallies),
        ),
    }
