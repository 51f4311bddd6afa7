"""What is planned after the stage at hand, prepared for questions: a frontier, or a graph for A*.

A series-parallel tail (chains, forks and joins, trees) is one exact frontier. Any other order is
cut down to its modules: each series-parallel module becomes one stage whose options are its
frontier, and A* searches over what is left. It does so for each question, until a sweep has made a
frontier of that as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.astar_run import graph_of, run_astar
from scheduler.search.dag import Composition, Dag, decompose, members
from scheduler.search.frontier import NOTHING, Frontier, in_parallel, in_series
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.frontier_refinement import RefinedFrontier, RefinementPass
from scheduler.search.graph import Graph

Part = tuple[int, Frontier]  # a module's stages, and what they can be had for


@dataclass(frozen=True, eq=False)
class Tail:
    """Stages planned together with the stage at hand, all after it.

    Attributes:
        frontier: of the whole tail where ``graph`` is None; else its two ends, the fastest
            completion and the cheapest.
        graph: for A*, where the tail is not series-parallel, or is to be searched the paper's way.
        parts: of each stage of the graph from 1 on, the set of stages it stands for.
        sweep: that makes the frontier of the graph; None where there is none, or the paper's way.
        epsilon: how far, relatively, thinned frontiers put any answer from the least cost.
    """

    frontier: Frontier
    graph: Graph | None = None
    parts: tuple[int, ...] = ()
    sweep: RefinementPass | None = None
    epsilon: float = 0.0

    @property
    def additive(self) -> bool:
        """Whether A* goes by the paper's bound."""
        return self.sweep is None

    @property
    def swept(self) -> RefinedFrontier | None:
        """The frontier of the graph, once it is made."""
        return None if self.sweep is None else self.sweep.swept

    @property
    def prepared(self) -> bool:
        """Whether nothing is left that `carry_on` would do."""
        return self.sweep is None or self.sweep.swept is not None

    def carry_on(self) -> None:
        """Do a piece of what is left to be prepared."""
        if self.sweep is not None:
            self.sweep.carry_on()


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
        sweep = None if additive else RefinementPass(graph, self._expansions_max)
        return Tail(ends, graph, tuple(mask for mask, _ in parts), sweep, epsilon)

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


def _one(mask: int) -> int:
    return next(members(mask))
