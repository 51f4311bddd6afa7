"""What follows the stage at hand, prepared for questions: one frontier, or a graph for A*.

A series-parallel tail (chains, forks and joins, trees) is one exact frontier. Any other order is
cut down to its modules: each series-parallel module becomes one stage whose options are its
frontier, and A* searches over what is left.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.arrays import Floats, Integers
from scheduler.search.astar import EXACT, search
from scheduler.search.dag import Composition, Dag, decompose, members
from scheduler.search.frontier import NOTHING, Frontier, in_parallel, in_series
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import Answer, Graph, Scratch

Part = tuple[int, Frontier]  # a module's stages, and what they can be had for
STATES_PER_EXPANSION = (
    16  # most children are cut; with fewer states the search ends early, and says so
)


@dataclass(frozen=True, eq=False)
class Tail:
    """All stages after the stage at hand, on one GPU model.

    Attributes:
        frontier: of the whole tail where ``graph`` is None; else its two ends, the fastest
            completion and the cheapest.
        graph: for A*, where the tail is not series-parallel.
        epsilon: how far, relatively, thinned frontiers put any answer from the least cost.
    """

    frontier: Frontier
    graph: Graph | None
    epsilon: float


class TailBuilder:
    """Builds the tails of one workflow on one GPU model; frontiers are shared among its stages."""

    def __init__(self, dag: Dag, expansions_max: int) -> None:
        self._dag = dag
        self._expansions_max = expansions_max
        self._known: dict[int, Frontier] = {0: NOTHING}  # by set of stages

    def set_stage(self, stage: int, frontier: Frontier) -> None:
        """Tell what a stage can be had for; to be done for all that follows before `tail`."""
        self._known[1 << stage] = frontier

    def tail(self, stage: int) -> Tail:
        """All that follows a stage."""
        parts = self._parts(self._dag.following[stage])
        if len(parts) <= 1:
            frontier = parts[0][1] if parts else NOTHING
            return Tail(frontier, None, frontier.epsilon)
        parts.sort(key=lambda part: self._dag.preceding[_one(part[0])].bit_count())
        dag = self._dag.reduced([stage, *(_one(mask) for mask, _ in parts)])
        frontiers = [frontier for _, frontier in parts]
        graph = graph_of(dag, frontiers)
        ends = _ends(graph, dag, frontiers, self._expansions_max)
        return Tail(ends, graph, max(f.epsilon for f in frontiers))

    def _parts(self, mask: int) -> list[Part]:
        """The fewest modules that each have one frontier."""
        if mask in self._known:
            return [(mask, self._known[mask])]
        composition, masks = decompose(self._dag, mask)
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


def graph_of(dag: Dag, frontiers: Sequence[Frontier]) -> Graph:
    """The arrays of A* for stages 1.. with these options; stage 0 is the stage at hand."""
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
        chain_cost,
        _rest([0.0, *(float(f.cost[0]) for f in frontiers)]),
        _rest([0.0, *(float(f.cost[-1]) for f in frontiers)]),
    )


def run_astar(  # noqa: PLR0913, PLR0917
    graph: Graph,
    first_ms: Floats,
    first_cost: Floats,
    budget_ms: float,
    k: int,
    expansions_max: int,
    *,
    additive: bool = False,
) -> tuple[Answer, int]:
    """`astar.search` with memory of its own; first configurations by rising time."""
    stages = len(graph.after_ms)
    states = Scratch.of(len(first_ms) + STATES_PER_EXPANSION * (expansions_max + 1) + 1, stages)
    answer = Answer.of(len(first_ms), k)
    status = search(
        graph, states, answer, first_ms, first_cost, budget_ms, expansions_max, additive
    )
    return answer, status


def _ends(graph: Graph, dag: Dag, frontiers: Sequence[Frontier], expansions_max: int) -> Frontier:
    """The fastest completion, at the least cost found, and the cheapest one."""
    fastest_ms = float(graph.after_ms[0])
    nothing = np.zeros(1)
    limit_ms = fastest_ms * (1.0 + ROUNDING)
    answer, status = run_astar(graph, nothing, nothing, limit_ms, 1, expansions_max)
    cheapest_ms = dag.longest_after([0.0, *(float(f.time_ms[-1]) for f in frontiers)])[0]
    cheapest_cost = float(graph.cheapest_cost[0])
    epsilon = max(f.epsilon for f in frontiers) if status == EXACT else math.inf
    if float(answer.cost[0]) <= cheapest_cost:
        return Frontier(np.array([fastest_ms]), np.array([float(answer.cost[0])]), epsilon)
    return Frontier(
        np.array([fastest_ms, cheapest_ms]),
        np.array([float(answer.cost[0]), cheapest_cost]),
        epsilon,
    )


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
