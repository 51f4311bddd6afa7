"""One search by A*: its graph, made of frontiers; its memory; what it found."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.arrays import Floats, Integers
from scheduler.search.astar import EXACT, search, trace
from scheduler.search.dag import Dag, members
from scheduler.search.frontier import NOTHING, Frontier, in_series, times_over
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import Answer, Graph, Scratch
from scheduler.search.time_prices import prices_of_time, without_prices

STATES_PER_EXPANSION = (
    16  # most children are cut; with fewer states the search ends early, and says so
)


def graph_of(dag: Dag, frontiers: Sequence[Frontier], *, additive: bool = False) -> Graph:
    """The arrays of A* for stages 1.. with these options; stage 0 is the stage at hand.

    With ``additive`` without the prices of time, for the paper's bound.
    """
    prices = without_prices(frontiers) if additive else prices_of_time(dag, frontiers)
    stages = len(frontiers) + 1
    fastest = [0.0, *(float(f.time_ms[0]) for f in frontiers)]
    total = dag.longest_after(fastest)
    after = [max((total[s] for s in members(mask)), default=0.0) for mask in dag.following]
    spread = [0.0, *(float(f.cost[0] - f.cost[-1]) for f in frontiers)]
    chains = [[v for v in chain if v > 0] for chain in dag.chains(spread)]
    window_end = np.zeros(stages)
    suffixes = [NOTHING] * stages
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
    option_start, option_ms, option_cost = _lists(options)
    chain_start, chain_ms, chain_cost = _lists(suffixes)
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
        # A thinned frontier may tell too much; a lower bound must not.
        chain_cost / (1.0 + max(f.epsilon for f in suffixes)),
        _rest([0.0, *(float(f.cost[0]) for f in frontiers)]),
        *prices,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run of `astar.search`, with all that it left behind."""

    graph: Graph
    states: Scratch
    answer: Answer
    first_ms: Floats
    budget_ms: float
    additive: bool
    status: int

    def order(self, k: int, tie: Integers | None = None) -> Integers:
        """The K first configurations of the cheapest completions, by rising cost and time."""
        keys = (self.answer.path_ms, self.answer.cost)
        order = np.lexsort(keys if tie is None else (tie, *keys))[:k]
        return np.asarray(order[np.isfinite(self.answer.cost[order])], np.int64)

    def epsilon(self, k: int) -> float:
        """How far the n-th least cost, n up to K, may be below the n-th found, relatively."""
        if self.status == EXACT:
            return 0.0
        found = np.sort(self.answer.cost)[:k]
        found = found[np.isfinite(found)]  # at least one: without any in time the search is exact
        least = np.sort(np.minimum(self.answer.least, found[-1]))[: len(found)]
        return max(float(times_over(found, least).max()) - 1.0, ROUNDING)

    def options(self, first: int) -> Integers:
        """The options of the best completion known of a first configuration: of each stage."""
        chosen = np.empty(len(self.graph.after_ms), np.int64)
        trace(
            self.graph,
            self.states,
            self.answer,
            first,
            self.first_ms,
            self.budget_ms,
            self.additive,
            chosen,
        )
        return chosen - self.graph.option_start[:-1]


def run_astar(  # noqa: PLR0913, PLR0917
    graph: Graph,
    first_ms: Floats,
    first_cost: Floats,
    budget_ms: float,
    k: int,
    expansions_max: int,
    *,
    additive: bool = False,
) -> Run:
    """`astar.search` with memory of its own; first configurations by rising time."""
    stages = len(graph.after_ms)
    states = Scratch.of(len(first_ms) + STATES_PER_EXPANSION * (expansions_max + 1) + 1, stages)
    answer = Answer.of(len(first_ms), k)
    status = search(
        graph, states, answer, first_ms, first_cost, budget_ms, expansions_max, additive
    )
    return Run(graph, states, answer, first_ms, budget_ms, additive, status)


def _rest(values: Sequence[float]) -> Floats:
    """Sums of the values from each index on; one longer than ``values``."""
    sums = np.zeros(len(values) + 1)
    for v in reversed(range(len(values))):
        sums[v] = values[v] + sums[v + 1]
    return sums


def _csr(lists: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    start = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(items) for items in lists], out=start[1:])
    return start, np.array([item for items in lists for item in items], np.int64)


def _lists(frontiers: Sequence[Frontier]) -> tuple[Integers, Floats, Floats]:
    start = np.zeros(len(frontiers) + 1, np.int64)
    np.cumsum([len(f.time_ms) for f in frontiers], out=start[1:])
    return (
        start,
        np.concatenate([f.time_ms for f in frontiers]),
        np.concatenate([f.cost for f in frontiers]),
    )
