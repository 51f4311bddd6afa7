"""Choice of a pod and a batch for the rows that are due first.

The rule is the planner's for running containers: the cheapest completion of the workflow that ends
within the budget. A busy pod, or one that starts, is a place too: its batch begins later.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from scheduler.dispatch.pods import Pod
from scheduler.dispatch.share_classes import BatchRow
from scheduler.search.frontiers.frontier_arrays import ROUNDING

OnLate = Literal["cheapest", "fastest", "drop"]
MARGIN_PARTS = 4  # of a margin that does not fit: three quarters, a half, a quarter, or none


class PodOption:
    """A pod that may run the next batch.

    Attributes:
        free_in_ms: time until a batch would execute.
        rows: profiled batches that it can run, smallest first.
        dollars: cost per request of each row.
    """

    __slots__ = ("dollars", "free_in_ms", "pod", "rows")

    def __init__(
        self, pod: Pod, free_in_ms: float, rows: tuple[BatchRow, ...], dollars: list[float]
    ) -> None:
        self.pod = pod
        self.free_in_ms = free_in_ms
        self.rows = rows
        self.dollars = dollars


class BatchOption:
    """A row on a place, with the cheapest completion of the workflow through it."""

    __slots__ = ("dollars", "path_ms", "place", "row")

    def __init__(self, dollars: float, path_ms: float, place: PodOption, row: BatchRow) -> None:
        self.dollars = dollars
        self.path_ms = path_ms
        self.place = place
        self.row = row


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches that suit the waiting rows.

    Attributes:
        rows_min: rows of the part that is due first; a batch has at least as many.
        rows_max: rows that can share its batch, itself included.
    """

    rows_min: int
    rows_max: int

    def suit(self, rows: tuple[BatchRow, ...]) -> tuple[int, int]:
        """Return the range of indices of the rows that suit; the nearest one where none does.

        No batch is larger than the rows that wait, unless even the smallest is.
        """
        first, last = 0, len(rows) - 1
        while first < last and rows[first].batch < self.rows_min:
            first += 1
        end = first + 1
        while end <= last and rows[end].batch <= self.rows_max:
            end += 1
        return first, end


@dataclass(slots=True)
class OtherStageCosts:
    """Least cost of all stages behind the current one, by the time that is left for them.

    Attributes:
        time_ms: strictly rising.
        dollars: strictly falling, as long.
    """

    time_ms: list[float]
    dollars: list[float]

    def cost_dollars(self, remaining_ms: float) -> float:
        """Return the least cost within a time; inf if the stages cannot end within it."""
        index = bisect_right(self.time_ms, remaining_ms) - 1
        return inf if index < 0 else self.dollars[index]


def cheapest_in_time(
    places: Sequence[PodOption], batches: Batches, others: OtherStageCosts, budget_ms: float
) -> BatchOption | None:
    """Return the cheapest completion within the budget, among equal ones the soonest; or None."""
    limit_ms = budget_ms + abs(budget_ms) * ROUNDING
    least_ms = others.time_ms[0]
    best: BatchOption | None = None
    for place in places:
        rows = place.rows
        first, end = batches.suit(rows)
        for i in range(first, end):
            stage_ms = place.free_in_ms + rows[i].latency_ms
            others_dollars = others.cost_dollars(limit_ms - stage_ms)
            if others_dollars < inf:
                dollars = place.dollars[i] + others_dollars
                path_ms = stage_ms + least_ms
                if (
                    best is None
                    or dollars < best.dollars
                    or (dollars == best.dollars and path_ms < best.path_ms)
                ):
                    best = BatchOption(dollars, path_ms, place, rows[i])
    return best


def without_limit(
    places: Sequence[PodOption],
    batches: Batches,
    others: OtherStageCosts,
    *,
    fastest: bool,
    run_max_ms: float = inf,
) -> BatchOption | None:
    """Return the cheapest completion of all, or the fastest; None without a place.

    None runs for longer than ``run_max_ms`` at this stage.
    """
    best: BatchOption | None = None
    for place in places:
        first, end = batches.suit(place.rows)
        for i in range(first, end):
            run_ms = place.free_in_ms + place.rows[i].latency_ms
            if run_ms > run_max_ms:
                continue
            path_ms = run_ms + others.time_ms[0]
            choice = BatchOption(
                place.dollars[i] + others.dollars[-1], path_ms, place, place.rows[i]
            )
            if best is None or _order(choice, fastest=fastest) < _order(best, fastest=fastest):
                best = choice
    return best


def _order(choice: BatchOption, *, fastest: bool) -> tuple[float, float]:
    if fastest:
        return choice.path_ms, choice.dollars
    return choice.dollars, choice.path_ms


def in_time(  # noqa: PLR0913 - each by its name
    places: Sequence[PodOption],
    batches: Batches,
    others: OtherStageCosts,
    *,
    slack_ms: float,
    margin_ratio: float,
    parts_min: int = 0,
) -> BatchOption | None:
    """Return the cheapest completion that leaves the margin, or as much of it as any leaves.

    None: no completion ends within the slack, or leaves the least of `MARGIN_PARTS`.
    """
    choice = cheapest_in_time(places, batches, others, slack_ms / (1.0 + margin_ratio))
    if choice is not None or margin_ratio <= 0.0:
        return choice
    fastest = without_limit(places, batches, others, fastest=True)
    if fastest is None or slack_ms + abs(slack_ms) * ROUNDING < fastest.path_ms:
        return None
    left_ratio = slack_ms / fastest.path_ms - 1.0
    parts = max(min(int(MARGIN_PARTS * left_ratio / margin_ratio), MARGIN_PARTS - 1), 0)
    if parts < parts_min:
        return None
    part_ratio = margin_ratio * parts / MARGIN_PARTS
    return cheapest_in_time(places, batches, others, slack_ms / (1.0 + part_ratio))
