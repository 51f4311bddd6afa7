"""What is remembered of a run: sums and histograms, whose size no number of requests changes."""

from collections.abc import Sequence
from typing import Any, Protocol

from workbench.simulation.result import BINS, Latency, Phases, WorkflowResult, bin_of

_BUCKETS_MAX = 512
_BUCKET_MS = 250.0


class UtilisationTrace:
    """The held part of a capacity over time, in buckets that double when there are too many."""

    __slots__ = ("_area", "_capacity", "_edge_ms", "_last_ms", "bucket_ms", "buckets", "held")

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self.held = 0.0
        self.bucket_ms = _BUCKET_MS
        self.buckets: list[float] = []  # means of those that are over
        self._area = 0.0  # held x ms in the bucket that is not
        self._last_ms = 0.0
        self._edge_ms = _BUCKET_MS

    def change(self, now_ms: float, more: float) -> None:
        """From now on so much more is held."""
        while now_ms >= self._edge_ms:
            self._close()
        self._area += self.held * (now_ms - self._last_ms)
        self._last_ms = now_ms
        self.held += more

    def until(self, now_ms: float) -> tuple[float, ...]:
        """The held part in each bucket, the last one until now."""
        self.change(now_ms, 0.0)
        begun_ms = self._edge_ms - self.bucket_ms
        last = [self._area / (now_ms - begun_ms)] if now_ms > begun_ms else []
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


class Ended(Protocol):
    """The last job of a request, with the phases of its longest chain of stages."""

    queue_ms: float
    start_ms: float
    transfer_ms: float
    execute_ms: float


class Tally:
    """How the requests of one workflow ended."""

    __slots__ = (
        "cost",
        "counts",
        "dropped",
        "execute_ms",
        "hits",
        "longest",
        "misses",
        "queue_ms",
        "ratios",
        "slo_ms",
        "start_ms",
        "transfer_ms",
    )

    def __init__(self, slo_ms: float) -> None:
        self.slo_ms = slo_ms
        self.hits = self.misses = self.dropped = 0
        self.cost = 0.0
        self.counts = [0] * BINS
        self.ratios = 0.0
        self.longest = 0.0
        self.queue_ms = self.start_ms = self.transfer_ms = self.execute_ms = 0.0

    def ended(self, job: Ended, latency_ms: float) -> bool:
        """A request ended with this job; whether within its SLO."""
        ratio = latency_ms / self.slo_ms
        self.counts[bin_of(ratio)] += 1
        self.ratios += ratio
        self.longest = max(self.longest, ratio)
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
    """Of one workflow."""
    return WorkflowResult(namespace=key[0], name=key[1], slo_ms=tally.slo_ms, **counts([tally]))


def counts(tallies: Sequence[Tally]) -> dict[str, Any]:
    """The fields of `Counts`, over several workflows."""
    hits = sum(each.hits for each in tallies)
    misses = sum(each.misses for each in tallies)
    dropped = sum(each.dropped for each in tallies)
    ended = hits + misses
    return {
        "requests": ended + dropped,
        "hits": hits,
        "misses": misses,
        "dropped": dropped,
        "cost": sum(each.cost for each in tallies),
        "latency": Latency(
            tuple(map(sum, zip(*(each.counts for each in tallies), strict=True))),
            sum(each.ratios for each in tallies) / ended if ended else 0.0,
            max((each.longest for each in tallies), default=0.0),
        ),
        "missed": Phases(
            sum(each.queue_ms for each in tallies),
            sum(each.start_ms for each in tallies),
            sum(each.transfer_ms for each in tallies),
            sum(each.execute_ms for each in tallies),
        ),
    }
