"""One question put to one stage on one GPU model: which configurations, at what cost."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.model.plan import Candidate, SearchEffort
from scheduler.search.arrays import Floats, Integers
from scheduler.search.astar_run import run_astar
from scheduler.search.downstream import Tail
from scheduler.search.frontier import times_over
from scheduler.search.frontier_kernels import ROUNDING, rank_by_frontier
from scheduler.search.frontier_refinement import ALIKE, RefinedFrontier
from scheduler.search.tables import FunctionTable
from scheduler.search.workflows import Option

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the stage at hand may be given; ``interval_ms`` between arrivals, 0 without a rate."""

    batch: int = UNLIMITED
    cpu: int = UNLIMITED
    gpu_percent: int = UNLIMITED
    memory_mib: int = UNLIMITED
    interval_ms: float = 0.0

    def allow(self, table: FunctionTable, *, batch: bool = True) -> NDArray[np.bool_]:
        """Which configurations are within; whether they keep up with the rate is not asked."""
        within = (
            (table.cpu <= self.cpu)
            & (table.gpu_percent <= self.gpu_percent)
            & (table.memory_mib <= self.memory_mib)
        )
        return within & (table.batch <= self.batch) if batch else within

    def keep_up(self, table: FunctionTable) -> NDArray[np.bool_]:
        """Which configurations serve at the rate at least; all where there is none."""
        return table.batch * self.interval_ms * (1.0 + ROUNDING) >= (
            table.latency_ms if self.interval_ms > 0.0 else 0.0
        )

    def stage_ms(self, table: FunctionTable) -> Floats:
        """Run time, and the time to fill the batch where there is a rate."""
        return table.time_ms + (table.batch - 1) * self.interval_ms


@dataclass(frozen=True, slots=True)
class Ranking:
    """The answer on one GPU model, best first; ``index`` into the table.

    ``path_ms`` is without the time that the start takes.
    """

    option: Option
    index: Integers
    path_ms: Floats
    path_cost_dollars: Floats
    effort: SearchEffort
    within_ceilings: bool
    epsilon: float

    def candidates(self, ceilings: Ceilings, start_ms: float) -> list[Candidate]:
        """As plans show them, on nodes that start the stage within ``start_ms``."""
        table = self.option.table
        interval_ms = ceilings.interval_ms
        found = []
        for i, path_ms, path_cost_dollars in zip(
            self.index.tolist(), self.path_ms.tolist(), self.path_cost_dollars.tolist(), strict=True
        ):
            configuration = table.configurations[i]
            stage_ms = float(table.time_ms[i]) + (configuration.batch - 1) * interval_ms
            found.append(
                Candidate(
                    configuration,
                    table.model,
                    stage_ms,
                    start_ms + path_ms,
                    path_cost_dollars,
                    start_ms,
                )
            )
        return found


def rank(
    option: Option, ceilings: Ceilings, budget_ms: float, k: int, *, fastest: bool = False
) -> Ranking:
    """The K best by the tail's frontier: of a series-parallel tail, or of any tail's two ends.

    Args:
        option: the stage at hand on one GPU model.
        ceilings: on the stage at hand.
        budget_ms: inf for none. Of a tail with a graph, only inf is answered rightly here.
        k: how many.
        fastest: by the fastest completion, whatever the budget.
    """
    table, frontier = option.table, option.tail.frontier
    index = np.empty(k, np.int64)
    path_ms, path_cost_dollars = np.empty(k), np.empty(k)
    counts = np.empty(4, np.int64)
    found = rank_by_frontier(
        table.time_ms,
        table.latency_ms,
        table.cost,
        table.batch,
        table.cpu,
        table.gpu_percent,
        table.memory_mib,
        table.tie,
        ceilings.batch,
        ceilings.cpu,
        ceilings.gpu_percent,
        ceilings.memory_mib,
        ceilings.interval_ms,
        frontier.time_ms,
        frontier.cost,
        budget_ms,
        fastest,
        index,
        path_ms,
        path_cost_dollars,
        counts,
    )
    expanded, cut_by_time, cut_by_cost, within = counts.tolist()
    return Ranking(
        option,
        index[:found],
        path_ms[:found],
        path_cost_dollars[:found],
        SearchEffort(expanded, cut_by_time, cut_by_cost),
        within > 0,
        frontier.epsilon,
    )


def search(
    option: Option, ceilings: Ceilings, budget_ms: float, k: int, expansions_max: int
) -> Ranking:
    """The K cheapest within the budget: by a frontier where the tail has one by now, or by A*."""
    tail = option.tail
    if tail.graph is None:
        return rank(option, ceilings, budget_ms, k)
    if tail.swept is not None:
        return _by_sweep(option, tail.swept, ceilings, budget_ms, k)
    table = option.table
    stage_ms = ceilings.stage_ms(table)
    index = np.flatnonzero(ceilings.allow(table) & ceilings.keep_up(table))
    index = index[np.argsort(stage_ms[index], kind="stable")]
    run = run_astar(
        tail.graph,
        stage_ms[index],
        table.cost[index],
        budget_ms,
        k,
        expansions_max,
        additive=tail.additive,
    )
    order = run.order(k, table.tie[index])
    return Ranking(
        option,
        index[order],
        run.answer.path_ms[order],
        run.answer.cost[order],
        SearchEffort(*run.answer.counts.tolist()),
        len(index) > 0,
        (1.0 + run.epsilon(k)) * (1.0 + tail.epsilon) - 1.0,
    )


def _by_sweep(
    option: Option, swept: RefinedFrontier, ceilings: Ceilings, budget_ms: float, k: int
) -> Ranking:
    """By the frontier that a sweep made; and how far it may be off for this very question."""
    found = rank(Option(option.table, Tail(swept.frontier)), ceilings, budget_ms, k)
    over = 1.0
    if swept.least is not swept.frontier:
        least = rank(Option(option.table, Tail(swept.least)), ceilings, budget_ms, k)
        over = float(times_over(found.path_cost_dollars, least.path_cost_dollars).max(initial=1.0))
    epsilon = (over if over > ALIKE else 1.0) * (1.0 + option.tail.epsilon) - 1.0
    return replace(found, option=option, epsilon=epsilon)


def by_throughput(option: Option, ceilings: Ceilings, k: int, *, fastest: bool) -> Ranking:
    """Where none keeps up with the rate: the K of the highest throughput.

    Each is shown with its fastest completion, or with its cheapest.
    """
    table, frontier = option.table, option.tail.frontier
    end = 0 if fastest else -1
    path_ms = ceilings.stage_ms(table) + frontier.time_ms[end]
    path_cost_dollars = table.cost + frontier.cost[end]
    index = np.flatnonzero(ceilings.allow(table))
    throughput = table.batch[index] / table.latency_ms[index]
    order = np.lexsort((table.tie[index], path_ms[index], path_cost_dollars[index], -throughput))[
        :k
    ]
    chosen = index[order]
    effort = SearchEffort(expanded=len(index))
    return Ranking(
        option,
        chosen,
        path_ms[chosen],
        path_cost_dollars[chosen],
        effort,
        len(index) > 0,
        frontier.epsilon,
    )


def with_rounding(budget_ms: float | None) -> float:
    """The budget, widened by what the order of summation may change; inf for none."""
    if budget_ms is None:
        return math.inf
    return budget_ms * (1.0 + math.copysign(ROUNDING, budget_ms))
