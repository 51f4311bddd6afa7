"""One plan request, answered in six ways.

The current stage is the first one of a workflow with generated profiles, which are noisy and hence
not monotone. All data that depends on documents alone is prepared before the measurement, for every
solver.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from bench.search_peers import astar_with_dominance, merge_per_call
from bench.timing import Timing
from scheduler.model.plan import Plan
from scheduler.search.chains.astar import ChainQuery, SearchResult, StageChain, States
from scheduler.search.chains.astar_kernels import search
from scheduler.search.chains.astar_run import chain_of
from scheduler.search.frontiers.arrays import Floats
from scheduler.search.frontiers.frontier import Frontier, in_series
from scheduler.search.frontiers.frontier_arrays import RANKED_ROW, StageQuery
from scheduler.search.frontiers.frontier_kernels import rank_by_frontier
from scheduler.search.planner import Planner, PlanRequest
from tests.search.factories import noisy_catalogue, noisy_rows, undominated_rows
from tests.search.solvers import CpSat, Problem

PREPARATIONS = 5
FACTORS = (1.2, 1.5, 2.0, 3.0)  # remaining time over the time of the fastest completion
STATES_MAX = 4_000_000  # for the paper's A*
UNITS_PER_MS = 1e3  # CP-SAT uses whole numbers; profiles have microseconds
UNITS_PER_DOLLAR = 1e12  # a request costs about 1e-5 dollars: seven digits


class SearchCase:
    """A workflow of a shape, with a number of configurations per stage on one GPU model.

    With ``undominated`` no configuration dominates another one, which gives the longest frontiers.

    Attributes:
        prepared_ms: median time from documents to tables and frontiers of the first stage.
        request: plan request for the first stage, without a slack.
        limits_ms: remaining times: FACTORS times the fastest completion.
    """

    def __init__(
        self,
        after: Sequence[Sequence[int]],
        configurations: int,
        *,
        k: int = 5,
        undominated: bool = False,
    ) -> None:
        rows_of = undominated_rows if undominated else noisy_rows
        catalogue = noisy_catalogue(after, configurations, rows_of=rows_of)
        self.request = PlanRequest(namespace="default", workflow="w", stage="s0", k=k)
        times_ms = []
        for _ in range(PREPARATIONS):
            self._planner = Planner(catalogue)
            times_ms.append(_prepare_ms(self._planner, self.request))
        self.prepared_ms = statistics.median(times_ms)
        self._stage = self._planner.stage(self.request)
        self._others = self._stage.other_stages(self.request.progress, math.inf)
        self._shape = after
        workflow = self._planner.workflow("default", "w")
        self._frontiers = [
            workflow.tables(v, None)[0].frontier for v in range(len(workflow.workflow.spec.stages))
        ]
        fastest_ms = self._planner.fastest_ms("default", "w")
        self.limits_ms = [factor * fastest_ms for factor in FACTORS]
        self._catalogue = catalogue

    def whole_ms(self) -> float:
        """Measure the preparation of all stages, from documents on."""
        planner = Planner(self._catalogue)
        spec = self._catalogue.workflow("default", "w").spec
        requests = [replace(self.request, stage=stage.name) for stage in spec.stages]
        return sum(_prepare_ms(planner, request) for request in requests)

    def through_the_front(self, limit_ms: float) -> Callable[[], Plan]:
        """Return a plan as the extender requests it."""
        request = replace(self.request, slack_ms=limit_ms)
        return partial(self._planner.plan, request)

    def by_kernel(self, limit_ms: float) -> Callable[[], tuple[int, ...]]:
        """Return a call of the kernel alone, on prepared arrays; for series-parallel workflows."""
        (table,), frontier = self._stage.tables, self._others.frontier
        k = self.request.k
        return partial(
            rank_by_frontier,
            table.rows,
            StageQuery(k),
            np.zeros(1),
            frontier.time_ms,
            frontier.cost,
            limit_ms,
            False,
            np.empty(k, RANKED_ROW),
        )

    def by_the_papers_astar(self, limit_ms: float) -> "PapersAstar":
        """Return the paper's compiled A*, on a prepared chain; for chains."""
        (table,) = self._stage.tables
        order = np.argsort(table.time_ms, kind="stable")
        return PapersAstar(
            self._frontiers[1:],
            Frontier(table.time_ms[order], table.cost[order]),
            limit_ms,
            self.request.k,
        )

    def by_merge(self, limit_ms: float) -> "ChainPeer":
        """Return a merge of the later stages' options in each call; for chains of three."""
        return self._by_peer(merge_per_call, limit_ms)

    def by_astar_with_dominance(self, limit_ms: float) -> "ChainPeer":
        """Return A* that skips dominated states; for chains."""
        return self._by_peer(astar_with_dominance, limit_ms)

    def _by_peer(self, search: "PeerSearch", limit_ms: float) -> "ChainPeer":
        (table,) = self._stage.tables
        first = Frontier(table.time_ms, table.cost)
        return ChainPeer(search, first, self._frontiers[1:], limit_ms, self.request.k)

    def join_us(self) -> float:
        """Measure the join of the later stages' frontiers, which plans find prepared."""
        return Timing.of(partial(reduce, in_series, self._frontiers[1:])).minimum_us

    def by_cp_sat(self, limit_ms: float) -> "CpSatMinimum":
        """Return CP-SAT on a prepared model."""
        return CpSatMinimum(self._shape, self._frontiers, limit_ms)


PeerSearch = Callable[[Floats, Floats, StageChain, float, Floats], None]


class ChainPeer:
    """One search of `bench.search_peers` per call."""

    def __init__(
        self,
        search: PeerSearch,
        first: Frontier,
        later: Sequence[Frontier],
        limit_ms: float,
        k: int,
    ) -> None:
        self._costs = np.empty(k)
        arguments = first.time_ms, first.cost, chain_of(later), limit_ms, self._costs
        self._search = partial(search, *arguments)

    def __call__(self) -> None:
        """Search once."""
        self._search()

    def costs(self) -> list[float]:
        """Return the K lowest costs."""
        return [float(cost) for cost in self._costs if np.isfinite(cost)]


class PapersAstar:
    """One search per call; the memory is reused, and the result is reset between calls."""

    def __init__(
        self,
        later: Sequence[Frontier],
        first: Frontier,
        limit_ms: float,
        k: int,
    ) -> None:
        self._chain = chain_of(later)
        self._states = States.of(STATES_MAX)
        self._query = ChainQuery(first.time_ms, first.cost, limit_ms, STATES_MAX)
        self._k = k
        self._best = SearchResult.of(len(first.cost), k)

    def __call__(self) -> None:
        """Search once."""
        for values in (self._best.cost, self._best.path_ms):
            values.fill(np.inf)
        self._best.leader_count.fill(0)
        self._best.counts.fill(0)
        if search(self._chain, self._states, self._best, self._query) > 0:
            raise RuntimeError(f"{STATES_MAX:,} states did not suffice; raise STATES_MAX")

    def costs(self) -> list[float]:
        """Return the K lowest costs."""
        costs = np.sort(self._best.cost)[: self._k]
        return [float(cost) for cost in costs if np.isfinite(cost)]


class CpSatMinimum:
    """The minimum cost alone, over undominated configurations."""

    def __init__(
        self, shape: Sequence[Sequence[int]], frontiers: Sequence[Frontier], limit_ms: float
    ) -> None:
        self._solver = CpSat(
            Problem(
                tuple(map(tuple, shape)),
                tuple(_whole(f.time_ms * UNITS_PER_MS) for f in frontiers),
                tuple(_whole(f.cost * UNITS_PER_DOLLAR) for f in frontiers),
                int(limit_ms * UNITS_PER_MS),
            )
        )

    def dollars(self) -> float:
        """Solve once; return dollars per request."""
        solution = self._solver.minimum()
        if solution is None:
            raise RuntimeError("CP-SAT finds no completion in time; check the limit")
        return solution[0] / UNITS_PER_DOLLAR


def _prepare_ms(planner: Planner, request: PlanRequest) -> float:
    """Measure the complete preparation of a stage, CPU time."""
    began = time.process_time()
    planner.stage(request)
    return (time.process_time() - began) * 1e3


def _whole(values: np.ndarray) -> tuple[int, ...]:
    return tuple(np.rint(values).astype(np.int64).tolist())
