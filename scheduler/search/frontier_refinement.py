"""What stages in any order can be had for: a frontier made of many searches, one for each time.

How long one branch takes decides what the others may take, so no join of two frontiers gives it.
But it depends on no question, and A* finds one point after the other: the least cost within one
time. Each search tells two things: a completion, so that from its time on no more need be paid; and
that nothing within the time it was given costs less.

The next search goes where it may save most: first between the fastest completion and the cheapest,
then where the costs of two neighbours differ most, or where a search ended early. When nothing is
left between any two neighbours the frontier is exact; when the budget of work ends first, it says
how far from the least cost it may be. The work is done in pieces, as questions come.
"""

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

import numpy as np

from scheduler.search.arrays import Integers
from scheduler.search.astar_run import run_astar
from scheduler.search.frontier import Frontier, pareto, times_over
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import Graph
from scheduler.search.rules import EXPANSIONS_MAX

SWEEP_SEARCHES = 320  # a sweep may expand as many states as so many searches of a question
PIECE_SEARCHES = 8  # a piece of it: what one question waits for
FIRST_SEARCHES = 1 / 4  # a search within one time; most need less
LONGER_SEARCHES = 10  # a second one, where that was not enough
SETUP_EXPANSIONS = 16  # beginning a search takes about as long as expanding so many states
LARGE_OPTIONS = 256  # of a graph: with more of them a state takes longer, and fewer are expanded
LONGER_WEIGHT = 1 / 8  # of what a longer search may save, against looking somewhere else
NEAR_RATIO = 0.01  # costs that differ by less: from here on, point after point
ALIKE = 1.0 + 4.0 * ROUNDING  # the ratio of costs that differ by rounding alone


class RefinedFrontier(NamedTuple):
    """What the stages can be had for, and what they cost at least.

    Attributes:
        frontier: completions that are there; its epsilon is the largest at any time.
        least: nothing costs less, at any time; the same where the frontier is exact.
        options: of each stage, for each point of the frontier.
    """

    frontier: Frontier
    least: Frontier
    options: Integers


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A completion in ``time_ms``; and nothing within ``limit_ms`` costs less than ``least``."""

    limit_ms: float
    time_ms: float
    cost: float
    least: float
    options: Integers


@dataclass(frozen=True, slots=True, order=True)
class _Gap:
    """Where something may be saved: between two neighbours, or by searching longer than for one.

    Attributes:
        saving: at most, relatively; negative, so that the largest is first.
        number: the order among equals.
        left, right: the neighbours; the same for one.
        at_end: look right before ``right``, for in the middle there is nothing new.
    """

    saving: float
    number: int
    left: _Found = field(compare=False)
    right: _Found = field(compare=False)
    at_end: bool = field(compare=False)


class RefinementPass:
    """The frontier of a graph's stages in the making; safe to carry on from several threads.

    Attributes:
        swept: None until nothing is left to be found, or the budget of work is spent.
        expanded: states until now.
    """

    def __init__(self, graph: Graph, expansions_max: int) -> None:
        """Of a graph; ``expansions_max`` of the search for one question."""
        self.swept: RefinedFrontier | None = None
        self.expanded = 0
        self._graph = graph
        larger = max(1.0, len(graph.option_ms) / LARGE_OPTIONS)
        # Who has questions searched for longer does not want them to wait for longer pieces too.
        usual = min(expansions_max, EXPANSIONS_MAX)
        self._left = int(SWEEP_SEARCHES * expansions_max / larger)
        self._piece = math.ceil(PIECE_SEARCHES * usual / larger)
        self._first = int(FIRST_SEARCHES * usual / larger)
        self._longer = int(max(expansions_max, LONGER_SEARCHES * usual) / larger)
        self._found: list[_Found] = []
        self._gaps: list[_Gap] = []
        self._numbers = 0
        self._work = self._searches()
        self._lock = Lock()

    def carry_on(self) -> None:
        """Do a piece of the work, where there is any left and nobody else is at it."""
        if self.swept is not None or not self._lock.acquire(blocking=False):
            return
        try:
            until = self._left - self._piece
            while self.swept is None and self._left > until:
                if next(self._work, None) is None:
                    self.swept = self._result()
        finally:
            self._lock.release()

    def _searches(self) -> Iterator[_Found]:
        """Look where most may be saved, until nothing is left to find or the budget is spent."""
        fastest = self._search(float(self._graph.after_ms[0]) * (1.0 + ROUNDING))
        yield fastest
        cheapest = self._search(math.inf, fastest)
        yield cheapest
        self._between(fastest, cheapest)
        while self._gaps and self._left > 0:
            gap = heapq.heappop(self._gaps)
            left, right = gap.left, gap.right
            if left is right:
                longer = self._search(left.limit_ms, left, longer=True)
                yield longer
                self._between(left, longer)
                continue
            limit_ms = right.time_ms * (1.0 - ROUNDING)
            if not gap.at_end:
                limit_ms = min(limit_ms, math.sqrt(left.limit_ms * right.time_ms))
            found = self._search(limit_ms, left)
            yield found
            self._between(left, found)
            if not gap.at_end:
                self._between(found, right, at_end=found.time_ms == left.time_ms)

    def _search(
        self, limit_ms: float, left: _Found | None = None, *, longer: bool = False
    ) -> _Found:
        """The least cost within a time; ``left`` is within it as well."""
        at_hand = np.zeros(1)  # nothing: the stages left alone
        most = self._longer if longer else self._first
        run = run_astar(self._graph, at_hand, at_hand, limit_ms, 1, most)
        expanded = int(run.answer.counts[0])
        self.expanded += expanded
        self._left -= expanded + SETUP_EXPANSIONS
        cost = float(run.answer.cost[0])
        least = min(float(run.answer.least[0]), cost)
        if left is None or cost < left.cost:
            time_ms = float(run.answer.path_ms[0])
            found = _Found(limit_ms, time_ms, cost, least, run.options(0)[1:])
        else:
            found = replace(left, limit_ms=limit_ms, least=least)
        self._found.append(found)
        if found.cost > found.least * (1.0 + ROUNDING) and most < self._longer:
            self._push(LONGER_WEIGHT * _excess(found.cost, found.least), found, found)
        return found

    def _between(self, left: _Found, right: _Found, *, at_end: bool = False) -> None:
        """Remember to look between two neighbours, if there may be something."""
        if left.time_ms < right.time_ms and left.cost > right.least * (1.0 + ROUNDING):
            saving = _excess(left.cost, right.cost)
            self._push(saving, left, right, at_end=at_end or saving < NEAR_RATIO)

    def _push(self, saving: float, left: _Found, right: _Found, *, at_end: bool = False) -> None:
        self._numbers += 1
        heapq.heappush(self._gaps, _Gap(-saving, self._numbers, left, right, at_end))

    def _result(self) -> RefinedFrontier:
        """What was found, in order; the rest is forgotten."""
        found = sorted(self._found, key=lambda each: each.limit_ms)
        self._found, self._gaps = [], []
        options = {(each.time_ms, each.cost): each.options for each in found}
        frontier = _apart(pareto(*np.array(list(options)).T))
        chosen = [options[point] for point in _points(frontier)]
        # A search says what is least up to its limit; from there on the next one does.
        limit_ms = np.array([each.limit_ms for each in found])
        since_ms = np.append(frontier.time_ms[:1], limit_ms[:-1])
        most = np.maximum.accumulate([each.least for each in reversed(found)])[::-1]
        least = pareto(since_ms, most)
        ends_ms = np.append(frontier.time_ms[1:] * (1.0 - 2.0 * ROUNDING), np.inf)
        until = np.searchsorted(least.time_ms, ends_ms, side="right") - 1
        over = float(times_over(frontier.cost, least.cost[until]).max())
        if over > ALIKE:
            frontier = replace(frontier, epsilon=over - 1.0)
        else:
            least = frontier
        return RefinedFrontier(frontier, least, np.array(chosen))


def _excess(cost: float, least: float) -> float:
    return float(times_over(cost, least)) - 1.0


def _apart(frontier: Frontier) -> Frontier:
    """Without points that differ in time from the next one by rounding alone."""
    keep = np.append(np.diff(frontier.time_ms) > 2.0 * ROUNDING * frontier.time_ms[:-1], True)
    return Frontier(frontier.time_ms[keep], frontier.cost[keep])


def _points(frontier: Frontier) -> Iterable[tuple[float, float]]:
    return zip(frontier.time_ms.tolist(), frontier.cost.tolist(), strict=True)
