"""One question to the search, ready to be put in four ways.

The stage at hand is the first of a workflow whose profiles are generated, seeded and noisy, so that
they are not monotone. Everything that depends on documents alone is prepared before the clock runs,
for the others as for us.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from scheduler.model.plan import Plan
from scheduler.search.astar import EXACT, search
from scheduler.search.astar_run import graph_of
from scheduler.search.dag import Dag
from scheduler.search.frontier import Frontier
from scheduler.search.frontier_kernels import rank_by_frontier
from scheduler.search.graph import Answer, Scratch
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.ranking import UNLIMITED
from tests.search.noisy import documents, rows, unbeaten_rows
from tests.search.solvers import CpSat, Problem

PREPARATIONS = 5
FACTORS = (1.2, 1.5, 2.0, 3.0)  # of the time left to that of the fastest completion
STATES_MAX = 4_000_000  # for the paper's A*
UNITS_PER_MS = 1e3  # CP-SAT counts in whole numbers; profiles are in microseconds
UNITS_PER_DOLLAR = 1e12  # a request costs some 10 millionths: seven digits


class SearchCase:
    """A workflow of this shape, with so many configurations a stage; on one GPU model.

    With ``unbeaten`` no configuration beats another one, so that frontiers are as long as they get.

    Attributes:
        prepared_ms: from documents to tables and frontiers, for the first stage; the median of
            several.
        request: about the first stage, without a slack.
        limits_ms: what may be left: FACTORS times the fastest completion.
    """

    def __init__(
        self,
        after: Sequence[Sequence[int]],
        configurations: int,
        *,
        k: int = 5,
        unbeaten: bool = False,
    ) -> None:
        rows_of = unbeaten_rows if unbeaten else rows
        catalogue = documents(after, configurations, rows_of=rows_of)
        self.request = PlanRequest(namespace="default", workflow="w", stage="s0", k=k)
        times_ms = []
        for _ in range(PREPARATIONS):
            self._planner = Planner(catalogue)
            times_ms.append(_prepare_ms(self._planner, self.request))
        self.prepared_ms = statistics.median(times_ms)
        (self._option,) = self._planner.stage(self.request).options
        self._shape = after
        workflow = self._planner.workflow("default", "w")
        self._frontiers = [
            workflow.tables(v, None)[0].frontier for v in range(len(workflow.workflow.spec.stages))
        ]
        fastest_ms = self._planner.fastest_ms("default", "w")
        self.limits_ms = [factor * fastest_ms for factor in FACTORS]
        self._catalogue = catalogue

    def whole_ms(self) -> float:
        """From documents to all that the questions to all stages need."""
        planner = Planner(self._catalogue)
        spec = self._catalogue.workflow("default", "w").spec
        asked = [replace(self.request, stage=stage.name) for stage in spec.stages]
        return sum(_prepare_ms(planner, request) for request in asked)

    def turns_ms(self, limit_ms: float) -> list[float]:
        """The first questions of all, each of which prepares a piece, until all is prepared."""
        request = replace(self.request, slack_ms=limit_ms)
        planner = Planner(self._catalogue)
        times_ms = []
        while not times_ms or not planner.stage(request).tail.prepared:
            began = time.perf_counter()
            planner.plan(request)
            times_ms.append((time.perf_counter() - began) * 1e3)
        return times_ms

    def through_the_front(self, limit_ms: float) -> Callable[[], Plan]:
        """As the extender asks."""
        request = replace(self.request, slack_ms=limit_ms)
        return partial(self._planner.plan, request)

    def by_kernel(self, limit_ms: float) -> Callable[[], int]:
        """The kernel alone, on arrays that are there; of a series-parallel workflow."""
        table, tail = self._option.table, self._option.tail.frontier
        k = self.request.k
        return partial(
            rank_by_frontier,
            table.time_ms,
            table.latency_ms,
            table.cost,
            table.batch,
            table.cpu,
            table.gpu_percent,
            table.memory_mib,
            table.tie,
            UNLIMITED,
            UNLIMITED,
            UNLIMITED,
            UNLIMITED,
            0.0,
            tail.time_ms,
            tail.cost,
            limit_ms,
            False,
            np.empty(k, np.int64),
            np.empty(k),
            np.empty(k),
            np.empty(4, np.int64),
        )

    def by_the_papers_astar(self, limit_ms: float) -> "PapersAstar":
        """A* with both blades and the additive bound, compiled, on a graph that is there."""
        table = self._option.table
        order = np.argsort(table.time_ms, kind="stable")
        return PapersAstar(
            self._shape,
            self._frontiers,
            Frontier(table.time_ms[order], table.cost[order]),
            limit_ms,
            self.request.k,
        )

    def by_cp_sat(self, limit_ms: float) -> "CpSatLeast":
        """CP-SAT, on a model that is built."""
        return CpSatLeast(self._shape, self._frontiers, limit_ms)


class PapersAstar:
    """One search at a time; its memory is kept and its answer emptied between calls."""

    def __init__(
        self,
        shape: Sequence[Sequence[int]],
        frontiers: Sequence[Frontier],
        first: Frontier,
        limit_ms: float,
        k: int,
    ) -> None:
        self._graph = graph_of(Dag.of(shape), frontiers[1:], additive=True)
        self._states = Scratch.of(STATES_MAX, len(frontiers))
        self._first, self._limit_ms, self._k = first, limit_ms, k
        self.answer = Answer.of(len(first.cost), k)

    def __call__(self) -> None:
        """Search anew."""
        for values in (self.answer.cost, self.answer.path_ms):
            values.fill(np.inf)
        self.answer.found.fill(0)
        self.answer.counts.fill(0)
        first, most = self._first, STATES_MAX
        status = search(
            self._graph,
            self._states,
            self.answer,
            first.time_ms,
            first.cost,
            self._limit_ms,
            most,
            True,
        )
        if status != EXACT:
            raise RuntimeError(f"{STATES_MAX:,} states did not suffice; raise STATES_MAX")

    def costs(self) -> list[float]:
        """The K least."""
        costs = np.sort(self.answer.cost)[: self._k]
        return [float(cost) for cost in costs if np.isfinite(cost)]


class CpSatLeast:
    """The least cost alone, over the configurations that no other one beats."""

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

    def __call__(self) -> float:
        """Solve anew; dollars per request."""
        answer = self._solver.least()
        if answer is None:
            raise RuntimeError("CP-SAT finds no completion in time")
        return answer[0] / UNITS_PER_DOLLAR


def _prepare_ms(planner: Planner, request: PlanRequest) -> float:
    """Prepare a stage to the end."""
    began = time.perf_counter()
    tail = planner.stage(request).tail
    while not tail.prepared:
        tail.carry_on()
    return (time.perf_counter() - began) * 1e3


def _whole(values: np.ndarray) -> tuple[int, ...]:
    return tuple(np.rint(values).astype(np.int64).tolist())
