"""Frontier of stages in any order, approximated by many A* searches with different time limits.

The time of one branch limits the times of the others, so no join of two frontiers gives the
frontier of such an order. It does not depend on the request, though, and A* finds one point after
another: the minimum cost within one time limit. Each search has two results: a completion, which
limits the cost from its time on, and a lower bound of the cost within its time limit.

The next search has the time limit that may save most: first between the fastest completion and the
cheapest, then where the costs of two neighbours differ most, or where a search ended early. If
nothing is open between any two neighbours, the frontier is exact. If the expansion limit is reached
first, its epsilon limits the excess over the minimum cost. The work is done in steps, each of which
publishes what is known.
"""

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

import numpy as np

from scheduler.search.arrays import Floats, Integers
from scheduler.search.astar_run import run_astar
from scheduler.search.frontier import Frontier, cost_ratios, pareto
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import Graph, Query
from scheduler.search.rules import EXPANSIONS_MAX

PASS_SEARCHES = 320  # a pass may expand as many states as this number of searches for requests
STEP_SEARCHES = 8  # expansions of one step, which delays one request
SHORT_SEARCHES = 1 / 4  # expansions of a search within one time limit; most need less
LONG_SEARCHES = 10  # expansions of a second search, if those did not suffice
SETUP_EXPANSIONS = 16  # the setup of a search takes about as long as this number of expansions
LARGE_OPTIONS = 256  # options of a graph; with more, a state takes longer and fewer are expanded
LONG_WEIGHT = 1 / 8  # of the possible saving of a long search, compared with another time limit
NEAR_RATIO = 0.01  # with a smaller cost difference the search proceeds point by point
EQUAL_RATIO = 1.0 + 4.0 * ROUNDING  # maximum ratio of costs that differ by rounding alone


class RefinedFrontier(NamedTuple):
    """Frontier of the stages, with a lower bound of their cost.

    Attributes:
        frontier: real completions; its epsilon is the maximum over all times.
        lower_bound: no completion costs less at any time; ``frontier`` itself if that is exact.
        options: option of each stage, for each point of the frontier.
    """

    frontier: Frontier
    lower_bound: Frontier
    options: Integers


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """A completion in ``time_ms``; within ``limit_ms`` none costs less than ``bound_dollars``."""

    limit_ms: float
    time_ms: float
    cost_dollars: float
    bound_dollars: float
    options: Integers


@dataclass(frozen=True, slots=True, order=True)
class _Gap:
    """A possible saving: between two neighbours, or by a longer search for one point.

    Attributes:
        negative_saving_ratio: upper bound; negative, so that the largest saving is first.
        number: the order of equal savings.
        before, after: the neighbours; the same point for a longer search.
        at_end: search directly before ``after``, because the middle has no new points.
    """

    negative_saving_ratio: float
    number: int
    before: _Point = field(compare=False)
    after: _Point = field(compare=False)
    at_end: bool = field(compare=False)


class RefinementPass:
    """Computes the frontier of a graph in steps; several threads may share it.

    Attributes:
        result: the completions known so far; the fastest and the cheapest one from the start.
        complete: True if nothing is open or the expansion limit is reached.
        expanded: number of states expanded so far.
    """

    def __init__(self, graph: Graph, expansions_max: int) -> None:
        """Create a pass; ``expansions_max`` is the limit of a search for one request."""
        self.complete = False
        self.expanded = 0
        self._graph = graph
        scale = max(1.0, len(graph.option_ms) / LARGE_OPTIONS)
        # A higher limit for requests must not make the steps longer, too.
        usual = min(expansions_max, EXPANSIONS_MAX)
        self._remaining = int(PASS_SEARCHES * expansions_max / scale)
        self._step = math.ceil(STEP_SEARCHES * usual / scale)
        self._short = int(SHORT_SEARCHES * usual / scale)
        self._long = int(max(expansions_max, LONG_SEARCHES * usual) / scale)
        self._points: list[_Point] = []
        self._gaps: list[_Gap] = []
        self._gap_count = 0
        self._searches = self._search_gaps()
        self._lock = Lock()
        for _ in range(2):
            next(self._searches)
        self.result = self._refined()

    def step(self) -> None:
        """Do one step of the work, unless it is complete or another thread does one."""
        if self.complete or not self._lock.acquire(blocking=False):
            return
        try:
            until = self._remaining - self._step
            while True:
                self.complete = next(self._searches, None) is None
                if self.complete or self._remaining <= until:
                    break
            self.result = self._refined()
            if self.complete:
                self._points, self._gaps = [], []
        finally:
            self._lock.release()

    def _search_gaps(self) -> Iterator[_Point]:
        """Search the largest gap, until no gap is open or the expansion limit is reached."""
        fastest = self._search(float(self._graph.after_ms[0]) * (1.0 + ROUNDING))
        yield fastest
        cheapest = self._search(math.inf, fastest)
        yield cheapest
        self._add_gap(fastest, cheapest)
        while self._gaps and self._remaining > 0:
            gap = heapq.heappop(self._gaps)
            before, after = gap.before, gap.after
            if before is after:
                improved = self._search(before.limit_ms, before, long=True)
                yield improved
                self._add_gap(before, improved)
                continue
            limit_ms = after.time_ms * (1.0 - ROUNDING)
            if not gap.at_end:
                limit_ms = min(limit_ms, math.sqrt(before.limit_ms * after.time_ms))
            middle = self._search(limit_ms, before)
            yield middle
            self._add_gap(before, middle)
            if not gap.at_end:
                self._add_gap(middle, after, at_end=middle.time_ms == before.time_ms)

    def _search(
        self, limit_ms: float, before: _Point | None = None, *, long: bool = False
    ) -> _Point:
        """Search for the minimum cost within a time limit; ``before`` is also within it."""
        current = np.zeros(1)  # an empty current stage: only the stages after it
        expansions_max = self._long if long else self._short
        run = run_astar(self._graph, Query(current, current, limit_ms, expansions_max), 1)
        expanded = int(run.best.counts[0])
        self.expanded += expanded
        self._remaining -= expanded + SETUP_EXPANSIONS
        cost = float(run.best.cost[0])
        bound = min(float(run.bounds()[0]), cost)
        if before is None or cost < before.cost_dollars:
            time_ms = float(run.best.path_ms[0])
            point = _Point(limit_ms, time_ms, cost, bound, run.options(0)[1:])
        else:
            point = replace(before, limit_ms=limit_ms, bound_dollars=bound)
        self._points.append(point)
        cost = point.cost_dollars
        if cost > bound * (1.0 + ROUNDING) and expansions_max < self._long:
            self._push(LONG_WEIGHT * _excess_ratio(cost, bound), point, point)
        return point

    def _add_gap(self, before: _Point, after: _Point, *, at_end: bool = False) -> None:
        """Add the gap between two neighbours, if a cheaper point is possible there."""
        if before.time_ms < after.time_ms and before.cost_dollars > after.bound_dollars * (
            1.0 + ROUNDING
        ):
            saving = _excess_ratio(before.cost_dollars, after.cost_dollars)
            self._push(saving, before, after, at_end=at_end or saving < NEAR_RATIO)

    def _push(
        self, saving_ratio: float, before: _Point, after: _Point, *, at_end: bool = False
    ) -> None:
        self._gap_count += 1
        heapq.heappush(self._gaps, _Gap(-saving_ratio, self._gap_count, before, after, at_end))

    def _refined(self) -> RefinedFrontier:
        """Build the frontier from all points."""
        points = sorted(self._points, key=lambda point: point.limit_ms)
        options = {(point.time_ms, point.cost_dollars): point.options for point in points}
        frontier = _without_near_points(pareto(*np.array(list(options)).T))
        chosen = [options[point] for point in _time_and_cost(frontier)]
        # The bound of a search is valid up to its limit; from there on that of the next one is.
        limits_ms = np.array([point.limit_ms for point in points])
        since_ms = np.append(frontier.time_ms[:1], limits_ms[:-1])
        bounds = np.maximum.accumulate([point.bound_dollars for point in reversed(points)])[::-1]
        lower_bound = pareto(since_ms, bounds)
        ends_ms = np.append(frontier.time_ms[1:] * (1.0 - 2.0 * ROUNDING), np.inf)
        at_end = np.searchsorted(lower_bound.time_ms, ends_ms, side="right") - 1
        ratio = max_cost_ratio(frontier.cost, lower_bound.cost[at_end])
        if ratio > 1.0:
            frontier = replace(frontier, epsilon=ratio - 1.0)
        else:
            lower_bound = frontier
        return RefinedFrontier(frontier, lower_bound, np.array(chosen))


def max_cost_ratio(cost: Floats, minimum: Floats) -> float:
    """Return the maximum of cost / minimum; 1 if they differ by rounding alone or are empty."""
    ratio = float(cost_ratios(cost, minimum).max(initial=1.0))
    return ratio if ratio > EQUAL_RATIO else 1.0


def _excess_ratio(cost_dollars: float, minimum_dollars: float) -> float:
    ratios = cost_ratios(np.array([cost_dollars]), np.array([minimum_dollars]))
    return float(ratios[0]) - 1.0


def _without_near_points(frontier: Frontier) -> Frontier:
    """Remove points whose time differs from that of the next one by rounding alone."""
    keep = np.append(np.diff(frontier.time_ms) > 2.0 * ROUNDING * frontier.time_ms[:-1], True)
    return Frontier(frontier.time_ms[keep], frontier.cost[keep])


def _time_and_cost(frontier: Frontier) -> Iterable[tuple[float, float]]:
    return zip(frontier.time_ms.tolist(), frontier.cost.tolist(), strict=True)
