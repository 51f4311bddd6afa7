"""Candidates of the current stage on one GPU model, for each place where it may start."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.kernel_calls import entry_point
from scheduler.model.plan import Candidate, SearchEffort
from scheduler.search.chains.astar import ChainQuery, StageChain
from scheduler.search.chains.astar_run import run_astar
from scheduler.search.frontiers import frontier_kernels
from scheduler.search.frontiers.arrays import Floats, Integers, Records
from scheduler.search.frontiers.frontier import Frontier, max_cost_ratio
from scheduler.search.frontiers.frontier_arrays import RANKED_ROW, ROUNDING, StageQuery
from scheduler.search.other_stages import OtherStages
from scheduler.search.tables import FunctionTable

_rank_by_frontier = entry_point(frontier_kernels.rank_by_frontier)


class Ranking(NamedTuple):
    """Candidates with the effort of the search and its maximum relative excess.

    They are in order, best first, for each place.
    """

    candidates: list[Candidate]
    effort: SearchEffort
    epsilon: float
    places: int = 1

    @property
    def admits_any(self) -> bool:
        """Return true if a configuration is within the ceilings and serves the rate."""
        effort = self.effort  # of the search, which expands or cuts every such configuration
        return effort.expanded + effort.cut_by_time + effort.cut_by_cost > 0


def search(  # noqa: PLR0913 - what a ranking depends on
    table: FunctionTable,
    others: OtherStages,
    query: StageQuery,
    budget_ms: float,
    starts_ms: Floats,
    *,
    fastest: bool = False,
) -> Ranking:
    """Find the K cheapest within the budget for each place.

    The search uses the frontier of the other stages, or with a budget A* over their chain, if any.

    Args:
        table: the current stage on one GPU model.
        others: stages planned together with it, by the time that is left for them.
        query: limits of the current stage.
        budget_ms: time from now until the end of all stages; inf without a limit.
        starts_ms: (places,) time until the stage starts at each place.
        fastest: true to find the K fastest instead, without a budget.
    """
    if others.chain is not None and budget_ms < math.inf:
        return _by_astar(table, others.chain, query, budget_ms, starts_ms)
    ranked, effort = _ranked(table, others.frontier, query, budget_ms, starts_ms, fastest)
    ratio = 1.0
    if others.lower_bound is not None:
        minimum, _ = _ranked(table, others.lower_bound, query, budget_ms, starts_ms, fastest)
        minima = np.maximum(minimum["path_cost"], others.minimum_dollars)
        ratio = max_cost_ratio(ranked["path_cost"], minima)
    epsilon = ratio * (1.0 + others.frontier.epsilon) - 1.0
    return Ranking(_candidates(table, ranked), effort, epsilon, len(starts_ms))


def within_ceilings(table: FunctionTable, query: StageQuery) -> NDArray[np.bool_]:
    """Mark the configurations within the ceilings."""
    return (
        (table.batch <= query.batch)
        & (table.cpu <= query.cpu)
        & (table.gpu_percent <= query.gpu_percent)
        & (table.memory_mib <= query.memory_mib)
    )


def _by_astar(
    table: FunctionTable, chain: StageChain, query: StageQuery, budget_ms: float, starts_ms: Floats
) -> Ranking:
    """Search the chain by A* with the paper's bounds, once for each place."""
    candidates: list[Candidate] = []
    effort, epsilon = SearchEffort(), 0.0
    limit_ms = table.latency_ms if query.interval_ms > 0.0 else 0.0
    serves = table.batch * query.interval_ms * (1.0 + ROUNDING) >= limit_ms
    admitted = np.flatnonzero(within_ceilings(table, query) & serves)
    for start_ms in starts_ms.tolist():
        stage_ms = start_ms + _stage_ms(table, query)
        index = admitted[stage_ms[admitted].argsort(kind="stable")]
        firsts = stage_ms[index], table.cost[index]
        run = run_astar(chain, ChainQuery(*firsts, float(budget_ms), query.expansions_max), query.k)
        order = run.order(query.k, table.tie[index])
        rows = index[order]
        ranked = _records(
            rows, _stage_ms(table, query), run.best.path_ms[order], run.best.cost[order], start_ms
        )
        candidates += _candidates(table, ranked)
        effort += SearchEffort(*run.best.counts.tolist())
        epsilon = max(epsilon, run.epsilon(query.k))
    return Ranking(candidates, effort, epsilon, len(starts_ms))


def rank_by_throughput(
    table: FunctionTable,
    others: OtherStages,
    query: StageQuery,
    start_ms: float,
    *,
    fastest: bool,
) -> Ranking:
    """Return the K configurations of the highest throughput, if none serves the rate.

    Each has its cheapest completion, or with ``fastest`` its fastest one.
    """
    frontier = others.frontier
    end = 0 if fastest else -1
    stage_ms = _stage_ms(table, query)
    path_ms = start_ms + (stage_ms + frontier.time_ms[end])
    path_cost = table.cost + frontier.cost[end]
    index = np.flatnonzero(within_ceilings(table, query))
    throughput = table.batch[index] / table.latency_ms[index]
    order = np.lexsort((table.tie[index], path_ms[index], path_cost[index], -throughput))
    selected = index[order[: query.k]]
    ranked = _records(selected, stage_ms, path_ms[selected], path_cost[selected], start_ms)
    effort = SearchEffort(expanded=len(index))
    return Ranking(_candidates(table, ranked), effort, frontier.epsilon)


def with_rounding_ms(budget_ms: float | None) -> float:
    """Return the budget, extended by the possible rounding of a sum; inf for None."""
    if budget_ms is None:
        return math.inf
    return budget_ms * (1.0 + math.copysign(ROUNDING, budget_ms))


def _stage_ms(table: FunctionTable, query: StageQuery) -> Floats:
    """Return run times, plus the times to fill the batch if there is a rate."""
    return table.time_ms + (table.batch - 1) * query.interval_ms


def _records(
    rows: Integers, stage_ms: Floats, path_ms: Floats, path_cost: Floats, start_ms: float
) -> Records:
    """Return ranked rows of the table as the kernel does, for one place."""
    ranked = np.empty(len(rows), RANKED_ROW)
    ranked["row"], ranked["stage_ms"], ranked["start_ms"] = rows, stage_ms[rows], start_ms
    ranked["path_ms"], ranked["path_cost"] = path_ms, path_cost
    return ranked


def _ranked(  # noqa: PLR0913, PLR0917 - as the kernel takes it
    table: FunctionTable,
    frontier: Frontier,
    query: StageQuery,
    budget_ms: float,
    starts_ms: Floats,
    fastest: bool,  # noqa: FBT001 - ditto
) -> tuple[Records, SearchEffort]:
    """Rank by one frontier, place after place."""
    ranked = np.empty(len(starts_ms) * query.k, RANKED_ROW)
    count, *effort = _rank_by_frontier(
        table.rows, query, starts_ms, frontier.time_ms, frontier.cost, budget_ms, fastest, ranked
    )
    return ranked[:count], SearchEffort(*effort)


def _candidates(table: FunctionTable, ranked: Records) -> list[Candidate]:
    """Build the candidates; each starts within its own time."""
    configurations, model = table.configurations, table.model
    # A named tuple's own constructor takes twice the time, a tenth of a plan.
    new = tuple.__new__
    return [
        new(Candidate, (configurations[row], model, stage_ms, path_ms, cost, start_ms))
        for row, stage_ms, path_ms, cost, start_ms in ranked.tolist()
    ]
