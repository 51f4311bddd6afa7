"""What is planned after the stage at hand, prepared for questions: one frontier, or a graph for A*.

A series-parallel tail (chains, forks and joins, trees) is one exact frontier. Any other order is
cut down to its modules: each series-parallel module becomes one stage whose options are its
frontier, and A* searches over what is left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.arrays import Floats, Integers
from scheduler.search.astar import EXACT, search, trace
from scheduler.search.dag import Composition, Dag, decompose, members
from scheduler.search.frontier import NOTHING, Frontier, in_parallel, in_series
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import Answer, Graph, Scratch
from scheduler.search.time_prices import prices_of_time, without_prices

Part = tuple[int, Frontier]  # a module's stages, and what they can be had for
STATES_PER_EXPANSION = (
    16  # most children are cut; with fewer states the search ends early, and says so
)


@dataclass(frozen=True, eq=False)
class Tail:
    """Stages planned together with the stage at hand, all after it.

    Attributes:
        frontier: of the whole tail where ``graph`` is None; else its two ends, the fastest
            completion and the cheapest.
        graph: for A*, where the tail is not series-parallel, or is to be searched the paper's way.
        parts: of each stage of the graph from 1 on, the set of stages it stands for.
        additive: whether A* goes by the paper's bound.
        epsilon: how far, relatively, thinned frontiers put any answer from the least cost.
    """

    frontier: Frontier
    graph: Graph | None = None
    parts: tuple[int, ...] = ()
    additive: bool = False
    epsilon: float = 0.0


class TailBuilder:
    """Builds the tails of one workflow on given GPU models; its stages share their frontiers."""

    def __init__(self, dag: Dag, expansions_max: int) -> None:
        self.dag = dag
        self._expansions_max = expansions_max
        self._known: dict[int, Frontier] = {0: NOTHING}  # by set of stages

    def set_stage(self, stage: int, frontier: Frontier) -> None:
        """Tell what a stage can be had for; to be done for all that follows before `tail`."""
        self._known[1 << stage] = frontier

    def known(self, mask: int) -> Frontier:
        """The frontier of a set of stages that was joined before."""
        return self._known[mask]

    def tail(self, stage: int, ahead: int) -> Tail:
        """The stages ahead of a stage, joined as far as they can be."""
        parts = self._parts(ahead)
        if len(parts) <= 1:
            frontier = parts[0][1] if parts else NOTHING
            return Tail(frontier, epsilon=frontier.epsilon)
        return self._searched(stage, parts, additive=False)

    def unjoined(self, stage: int, ahead: int) -> Tail:
        """The stages ahead of a stage as they are, to be searched with the paper's bound."""
        if ahead == 0:
            return Tail(NOTHING)
        return self._searched(
            stage, [(1 << v, self._known[1 << v]) for v in members(ahead)], additive=True
        )

    def _searched(self, stage: int, parts: list[Part], *, additive: bool) -> Tail:
        parts.sort(key=lambda part: self.dag.preceding[_one(part[0])].bit_count())
        dag = self.dag.reduced([stage, *(_one(mask) for mask, _ in parts)])
        frontiers = [frontier for _, frontier in parts]
        graph = graph_of(dag, frontiers, additive=additive)
        ends = _ends(graph, dag, frontiers, self._expansions_max)
        epsilon = max(f.epsilon for f in frontiers)
        return Tail(ends, graph, tuple(mask for mask, _ in parts), additive, epsilon)

    def _parts(self, mask: int) -> list[Part]:
        """The fewest modules that each have one frontier."""
        if mask in self._known:
            return [(mask, self._known[mask])]
        composition, masks = decompose(self.dag, mask)
        if composition is Composition.SERIES:
            rest = mask & ~masks[0]
            parts = self._parts(masks[0]), self._parts(rest)
            if all(len(part) == 1 for part in parts):
                return self._joined(mask, in_series, [part[0][1] for part in parts])
            return [*parts[0], *parts[1]]
        found = [self._parts(part) for part in masks]
        if composition is Composition.PARALLEL and all(len(part) == 1 for part in found):
            return self._joined(mask, in_parallel, [part[0][1] for part in found])
        return [part for parts in found for part in parts]

    def _joined(
        self, mask: int, join: Callable[[Frontier, Frontier], Frontier], parts: list[Frontier]
    ) -> list[Part]:
        whole = parts[0]
        for part in parts[1:]:
            whole = join(whole, part)
        self._known[mask] = whole
        return [(mask, whole)]


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
        over = np.where(found > least, found / np.maximum(least, np.finfo(float).tiny), 1.0)
        return max(float(over.max()) - 1.0, ROUNDING)

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


def _ends(graph: Graph, dag: Dag, frontiers: Sequence[Frontier], expansions_max: int) -> Frontier:
    """The fastest completion, at the least cost found, and the cheapest one."""
    fastest_ms = float(graph.after_ms[0])
    nothing = np.zeros(1)
    limit_ms = fastest_ms * (1.0 + ROUNDING)
    run = run_astar(graph, nothing, nothing, limit_ms, 1, expansions_max)
    cost = float(run.answer.cost[0])
    cheapest_ms = dag.longest_after([0.0, *(float(f.time_ms[-1]) for f in frontiers)])[0]
    cheapest_cost = float(graph.row_cost[0])
    epsilon = (1.0 + max(f.epsilon for f in frontiers)) * (1.0 + run.epsilon(1)) - 1.0
    if cost <= cheapest_cost:
        return Frontier(np.array([fastest_ms]), np.array([cost]), epsilon)
    return Frontier(np.array([fastest_ms, cheapest_ms]), np.array([cost, cheapest_cost]), epsilon)


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


def _one(mask: int) -> int:
    return next(members(mask))
