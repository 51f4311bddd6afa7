"""One A* search: the chain built from frontiers, its memory and its result."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.chains.astar import ChainQuery, SearchResult, StageChain, States
from scheduler.search.chains.astar_kernels import search
from scheduler.search.frontiers.arrays import Floats, Integers
from scheduler.search.frontiers.frontier import Frontier, cost_ratios
from scheduler.search.frontiers.frontier_arrays import ROUNDING

# Most children are cut. If the states do not suffice, the search ends early and reports it.
STATES_PER_EXPANSION = 32


def chain_of(frontiers: Sequence[Frontier]) -> StageChain:
    """Build the arrays of A* for stages that run one after the other; at least one."""
    start = np.zeros(len(frontiers) + 1, np.int64)
    np.cumsum([len(f.time_ms) for f in frontiers], out=start[1:])
    return StageChain(
        start,
        np.concatenate([f.time_ms for f in frontiers]),
        np.concatenate([f.cost for f in frontiers]),
        _suffix_sums([float(f.time_ms[0]) for f in frontiers]),
        _suffix_sums([float(f.cost[0]) for f in frontiers]),
        _suffix_sums([float(f.cost[-1]) for f in frontiers]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class AStarRun:
    """One finished search with its memory and its result.

    Attributes:
        open_states: 0 if the search was exact; otherwise the number of states in the heap.
    """

    states: States
    best: SearchResult
    open_states: int

    def order(self, k: int, tie: Integers) -> Integers:
        """Return the K first configurations with the cheapest completions, by cost, then time."""
        order = np.lexsort((tie, self.best.path_ms, self.best.cost))[:k]
        return np.asarray(order[np.isfinite(self.best.cost[order])], np.int64)

    def epsilon(self, k: int) -> float:
        """Return the maximum relative excess of the n-th cost over the n-th minimum, n up to K."""
        if self.open_states == 0:
            return 0.0
        bounds = self.best.cost.copy()  # of each first configuration, valid up to the K-th cost
        heap = self.states.heap[: self.open_states]
        np.minimum.at(bounds, self.states.first[heap], self.states.bound[heap])
        costs = np.sort(self.best.cost)[:k]
        costs = costs[np.isfinite(costs)]  # not empty: without any in time the search is exact
        minima = np.sort(np.minimum(bounds, costs[-1]))[: len(costs)]
        return max(float(cost_ratios(costs, minima).max()) - 1.0, ROUNDING)


def run_astar(chain: StageChain, query: ChainQuery, k: int) -> AStarRun:
    """Search for the K cheapest first configurations with newly allocated memory."""
    firsts = len(query.first_ms)
    states = States.of(firsts + STATES_PER_EXPANSION * (query.expansions_max + 1))
    best = SearchResult.of(firsts, k)
    return AStarRun(states, best, search(chain, states, best, query))


def _suffix_sums(values: Sequence[float]) -> Floats:
    """Sum the values from each index on; the result has one more element than ``values``."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
