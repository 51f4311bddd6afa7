"""One A* search: the graph built from frontiers, its memory and its result."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.arrays import Floats, Integers
from scheduler.search.astar import complete_greedily, search
from scheduler.search.dag import Dag, members
from scheduler.search.frontier import EMPTY, Frontier, cost_ratios, in_series
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import Graph, Query, Scratch, SearchResult
from scheduler.search.time_prices import prices_of_time, without_prices

# Most children are cut. If the states do not suffice, the search ends early and reports it.
STATES_PER_EXPANSION = 16


def graph_of(dag: Dag, frontiers: Sequence[Frontier], *, additive: bool = False) -> Graph:
    """Build the arrays of A* for stages 1.. with these options; stage 0 is the current stage.

    With ``additive``, for the paper's bound, they have no prices of time.
    """
    prices = without_prices(frontiers) if additive else prices_of_time(dag, frontiers)
    stages = len(frontiers) + 1
    fastest = [0.0, *(float(f.time_ms[0]) for f in frontiers)]
    total = dag.longest_after(fastest)
    after = [max((total[s] for s in members(mask)), default=0.0) for mask in dag.following]
    spread = [0.0, *(float(f.cost[0] - f.cost[-1]) for f in frontiers)]
    chains = [[v for v in chain if v > 0] for chain in dag.chains(spread)]
    window_end = np.zeros(stages)
    suffixes = [EMPTY] * stages
    for chain in chains:
        for at in reversed(range(len(chain))):
            v = chain[at]
            own = frontiers[v - 1]
            suffixes[v] = own if at + 1 == len(chain) else in_series(own, suffixes[chain[at + 1]])
            window_end[v] = after[chain[-1]]
    heads = [
        [next(v for v in chain if v >= fixed) for chain in chains if chain and chain[-1] >= fixed]
        for fixed in range(stages + 1)
    ]
    options = [Frontier(np.empty(0), np.empty(0)), *frontiers]
    before_start, before = _csr([list(members(mask)) for mask in dag.before])
    head_start, head = _csr(heads)
    option_start, option_ms, option_cost = _point_lists(options)
    chain_start, chain_ms, chain_cost = _point_lists(suffixes)
    return Graph(
        before_start,
        before,
        np.array(after),
        np.array(fastest),
        option_start,
        option_ms,
        option_cost,
        head_start,
        head,
        window_end,
        chain_start,
        chain_ms,
        # The cost of a thinned frontier may be too high for a lower bound.
        chain_cost / (1.0 + max(f.epsilon for f in suffixes)),
        _suffix_sums([0.0, *(float(f.cost[0]) for f in frontiers)]),
        *prices,
    )


@dataclass(frozen=True, slots=True, eq=False)
class AStarRun:
    """One finished search with its memory and its result.

    Attributes:
        open_states: 0 if the search was exact; otherwise the number of states in the heap.
    """

    graph: Graph
    states: Scratch
    best: SearchResult
    query: Query
    open_states: int

    def order(self, k: int, tie: Integers | None = None) -> Integers:
        """Return the K first configurations with the cheapest completions, by cost, then time."""
        keys = (self.best.path_ms, self.best.cost)
        order = np.lexsort(keys if tie is None else (tie, *keys))[:k]
        return np.asarray(order[np.isfinite(self.best.cost[order])], np.int64)

    def bounds(self) -> Floats:
        """Return a lower bound of each first configuration's cost, valid up to the K-th cost."""
        bounds = self.best.cost.copy()
        heap = self.states.heap[: self.open_states]
        np.minimum.at(bounds, self.states.first[heap], self.states.bound[heap])
        return bounds

    def epsilon(self, k: int) -> float:
        """Return the maximum relative excess of the n-th cost over the n-th minimum, n up to K."""
        if self.open_states == 0:
            return 0.0
        costs = np.sort(self.best.cost)[:k]
        costs = costs[np.isfinite(costs)]  # not empty: without any in time the search is exact
        minima = np.sort(np.minimum(self.bounds(), costs[-1]))[: len(costs)]
        return max(float(cost_ratios(costs, minima).max()) - 1.0, ROUNDING)

    def options(self, first: int) -> Integers:
        """Return the option of each stage in the best completion of a first configuration.

        Options are indices into the stage's list in the graph; that of stage 0 is ``first``.
        """
        states, option_start = self.states, self.graph.option_start
        state, rule = self.best.state[first], self.best.option[first]
        chosen = option_start[:-1].copy()  # every open stage at its fastest
        v = states.stage[state] + 1
        if rule < 0:
            complete_greedily(self.graph, states, self.best, self.query, state, rule)
            chosen[v:] = states.chosen[v:]
        else:
            chosen[v] = rule
        while state >= 0:
            chosen[states.stage[state]] = states.option[state]
            state = states.parent[state]
        return chosen - option_start[:-1]


def run_astar(graph: Graph, query: Query, k: int) -> AStarRun:
    """Search for the K cheapest first configurations with newly allocated memory."""
    firsts = len(query.first_ms)
    count = firsts + STATES_PER_EXPANSION * (query.expansions_max + 1) + 1
    states = Scratch.of(count, len(graph.after_ms))
    best = SearchResult.of(firsts, k)
    return AStarRun(graph, states, best, query, search(graph, states, best, query))


def _suffix_sums(values: Sequence[float]) -> Floats:
    """Sum the values from each index on; the result has one more element than ``values``."""
    sums = np.zeros(len(values) + 1)
    for v in reversed(range(len(values))):
        sums[v] = values[v] + sums[v + 1]
    return sums


def _csr(lists: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    start = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(items) for items in lists], out=start[1:])
    return start, np.array([item for items in lists for item in items], np.int64)


def _point_lists(frontiers: Sequence[Frontier]) -> tuple[Integers, Floats, Floats]:
    start = np.zeros(len(frontiers) + 1, np.int64)
    np.cumsum([len(f.time_ms) for f in frontiers], out=start[1:])
    return (
        start,
        np.concatenate([f.time_ms for f in frontiers]),
        np.concatenate([f.cost for f in frontiers]),
    )
