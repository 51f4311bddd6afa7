"""Constant-memory aggregates of a run: sums, histograms, and the utilisation over time."""

from collections.abc import Sequence
from math import ceil
from typing import Any, Protocol

from workbench.simulation.result import BINS, Latency, Phases, WorkflowResult, bin_of

_BUCKETS_MAX = 512
_BUCKET_MS = 250.0
_WINDOW_MS = 1_000.0


class UtilisationTrace:
    """Held ratio of a capacity over time, in buckets whose width doubles when they are too many."""

    __slots__ = (
        "_area",
        "_capacity",
        "_edge_ms",
        "_last_ms",
        "bucket_ms",
        "buckets",
        "held_percent",
    )

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.held_percent = 0
        self.bucket_ms = _BUCKET_MS
        self.buckets: list[float] = []  # means of those that are over
        self._area = 0.0  # held_percent x ms in the bucket that is not
        self._last_ms = 0.0
        self._edge_ms = _BUCKET_MS

    def add(self, now_ms: float, amount: int) -> None:
        """Hold so much in addition from now on."""
        while now_ms >= self._edge_ms:
            self._close()
        self._area += self.held_percent * (now_ms - self._last_ms)
        self._last_ms = now_ms
        self.held_percent += amount

    def until(self, now_ms: float) -> tuple[float, ...]:
        """Return the held_percent ratio in each bucket, the last one until now."""
        self.add(now_ms, 0)
        begin_ms = self._edge_ms - self.bucket_ms
        last = [self._area / (now_ms - begin_ms)] if now_ms > begin_ms else []
        return tuple(mean / self._capacity for mean in [*self.buckets, *last])

    def _close(self) -> None:
        self._area += self.held_percent * (self._edge_ms - self._last_ms)
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
    """Outcomes of the requests of one workflow that arrived in one window."""

    __slots__ = (
        "counts",
        "dropped",
        "execute_ms",
        "hits",
        "max_ratio",
        "misses",
        "queue_ms",
        "ran_dollars",
        "ran_joules",
        "ratio_sum",
        "start_ms",
        "transfer_ms",
    )

    def __init__(self) -> None:
        self.hits = self.misses = self.dropped = 0
        self.ran_dollars = self.ran_joules = 0.0
        self.counts: dict[int, int] = {}
        self.ratio_sum = 0.0
        self.max_ratio = 0.0
        self.queue_ms = self.start_ms = self.transfer_ms = self.execute_ms = 0.0

    @property
    def requests(self) -> int:
        """Number of requests that have ended."""
        return self.hits + self.misses + self.dropped

    def end(self, job: EndedJob, ratio: float) -> bool:
        """Count a request that ended with this job; return true if it met its SLO.

        Args:
            job: last job of the request.
            ratio: latency over SLO.
        """
        place = bin_of(ratio)
        self.counts[place] = self.counts.get(place, 0) + 1
        self.ratio_sum += ratio
        self.max_ratio = max(self.max_ratio, ratio)
        if ratio <= 1.0:
            self.hits += 1
            return True
        self.misses += 1
        self.queue_ms += job.queue_ms
        self.start_ms += job.start_ms
        self.transfer_ms += job.transfer_ms
        self.execute_ms += job.execute_ms
        return False

    def add(self, tally: "Tally") -> None:
        """Add the outcomes of another tally."""
        self.max_ratio = max(self.max_ratio, tally.max_ratio)
        for place, count in tally.counts.items():
            self.counts[place] = self.counts.get(place, 0) + count
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(tally, name))


_SUMS = tuple(name for name in Tally.__slots__ if name not in {"counts", "max_ratio"})


class TallyWindows:
    """Tallies of all workflows by window of arrival; too many windows become half as many.

    Attributes:
        width_ms: width of a window.
    """

    def __init__(self, workflows: int) -> None:
        self._workflows = workflows
        self.width_ms = _WINDOW_MS
        self._windows: list[list[Tally]] = []

    def at(self, workflow: int, arrival_ms: float) -> Tally:
        """Return the tally of a request of a workflow, by its index."""
        index = int(arrival_ms / self.width_ms)
        while index >= len(self._windows):
            if len(self._windows) == _BUCKETS_MAX:
                self._halve()
                index = int(arrival_ms / self.width_ms)
            else:
                self._windows.append([Tally() for _ in range(self._workflows)])
        return self._windows[index][workflow]

    def since(self, from_ms: float) -> list[Tally]:
        """Return the tallies of each workflow over the windows that begin at a time or later."""
        totals = [Tally() for _ in range(self._workflows)]
        for tallies in self._windows[ceil(from_ms / self.width_ms) :]:
            for total, tally in zip(totals, tallies, strict=True):
                total.add(tally)
        return totals

    def over_time(self) -> list[Tally]:
        """Return one tally for each window, over all workflows."""
        totals = []
        for tallies in self._windows:
            total = Tally()
            for tally in tallies:
                total.add(tally)
            totals.append(total)
        return totals

    def _halve(self) -> None:
        for first, second in zip(self._windows[::2], self._windows[1::2], strict=True):
            for tally, later in zip(first, second, strict=True):
                tally.add(later)
        self._windows = self._windows[::2]
        self.width_ms *= 2


class HeldCost:
    """Dollars that containers cost while they hold resources, in total and over time."""

    __slots__ = ("_dollars", "_dollars_per_ms", "_edge_ms", "_edges", "_last_ms", "_width_ms")

    def __init__(self) -> None:
        self._dollars_per_ms = 0.0  # of all that is held
        self._dollars = 0.0
        self._last_ms = 0.0
        self._width_ms = _WINDOW_MS
        self._edges = [0.0]  # dollars until each multiple of the width
        self._edge_ms = _WINDOW_MS  # the next one

    def change(self, now_ms: float, dollars_per_ms: float) -> None:
        """Hold so much in addition from now on."""
        while now_ms >= self._edge_ms:
            self._close()
        self._dollars += self._dollars_per_ms * (now_ms - self._last_ms)
        self._last_ms = now_ms
        self._dollars_per_ms += dollars_per_ms

    def total_dollars(self, time_ms: float) -> float:
        """Return the dollars until a time; a past one that is no edge is interpolated."""
        if time_ms >= self._last_ms:
            return self._dollars + self._dollars_per_ms * (time_ms - self._last_ms)
        index = int(time_ms / self._width_ms)
        begin_ms = index * self._width_ms
        if index + 1 < len(self._edges):
            end_ms, end_dollars = begin_ms + self._width_ms, self._edges[index + 1]
        else:
            end_ms, end_dollars = self._last_ms, self._dollars
        begin_dollars = self._edges[index]
        ratio = (time_ms - begin_ms) / (end_ms - begin_ms)
        return begin_dollars + ratio * (end_dollars - begin_dollars)

    def _close(self) -> None:
        self._dollars += self._dollars_per_ms * (self._edge_ms - self._last_ms)
        self._last_ms = self._edge_ms
        self._edges.append(self._dollars)
        if len(self._edges) > _BUCKETS_MAX:
            self._edges = self._edges[::2]
            self._width_ms *= 2
        self._edge_ms = len(self._edges) * self._width_ms


def workflow_result(key: tuple[str, str], slo_ms: float, tally: Tally) -> WorkflowResult:
    """Return the result of one workflow."""
    return WorkflowResult(namespace=key[0], name=key[1], slo_ms=slo_ms, **counts([tally]))


def counts(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the fields of `Counts` over several tallies."""
    total = Tally()
    for tally in tallies:
        total.add(tally)
    ended = total.hits + total.misses
    return {
        "requests": total.requests,
        "hits": total.hits,
        "misses": total.misses,
        "dropped": total.dropped,
        "ran_dollars": total.ran_dollars,
        "ran_joules": total.ran_joules,
        "latency": Latency(
            tuple(total.counts.get(place, 0) for place in range(BINS)),
            total.ratio_sum / ended if ended else 0.0,
            total.max_ratio,
        ),
        "missed": Phases(total.queue_ms, total.start_ms, total.transfer_ms, total.execute_ms),
    }
