"""Constant-memory aggregates of a run: outcomes, cost and utilisation over time."""

from collections.abc import Iterable
from heapq import heappop, heappush

from workbench.simulation.counts import Tally
from workbench.simulation.windows import DollarsOverTime

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

    def all(self) -> tuple[tuple[Tally, ...], ...]:
        """Return the tallies of each window by workflow."""
        return tuple(map(tuple, self._windows))

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

    def until(self, edges_ms: Iterable[float], end_ms: float) -> DollarsOverTime:
        """Return the dollars until each of these times, ascending, and until the end."""
        until = tuple(map(self.total_dollars, edges_ms))
        return DollarsOverTime(until, self.total_dollars(end_ms))

    def _close(self) -> None:
        self._dollars += self._dollars_per_ms * (self._edge_ms - self._last_ms)
        self._last_ms = self._edge_ms
        self._edges.append(self._dollars)
        if len(self._edges) > _BUCKETS_MAX:
            self._edges = self._edges[::2]
            self._width_ms *= 2
        self._edge_ms = len(self._edges) * self._width_ms


class TimedCost(HeldCost):
    """Dollars of what is held until a time that is known when it begins."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[tuple[float, float]] = []  # a heap: time, change of the dollars per ms

    def hold(self, now_ms: float, end_ms: float, dollars_per_ms: float) -> None:
        """Hold so much in addition from now until then; a negative amount takes it back."""
        self._advance(now_ms)
        self.change(now_ms, dollars_per_ms)
        heappush(self._ends, (end_ms, -dollars_per_ms))

    def total_dollars(self, time_ms: float) -> float:
        """Return the dollars until a time."""
        self._advance(time_ms)
        return super().total_dollars(time_ms)

    def _advance(self, now_ms: float) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now_ms:
            self.change(*heappop(ends))
