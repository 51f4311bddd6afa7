"""Stages after the current one, prepared for planning: a frontier, or a graph for A*.

Series-parallel stages (chains, forks and joins, trees) have one exact frontier. Any other order is
reduced to its modules: each series-parallel module becomes one stage whose options are its
frontier, and A* searches over the reduced order. Each request runs a search, until a refinement
pass has computed a frontier of the reduced order as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.astar_run import graph_of, run_astar
from scheduler.search.dag import Composition, Dag, decompose, members
from scheduler.search.frontier import EMPTY, Frontier, in_parallel, in_series
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.frontier_refinement import RefinedFrontier, RefinementPass
from scheduler.search.graph import Graph, Query

Module = tuple[int, Frontier]  # the stages of a module, and its frontier


@dataclass(frozen=True, eq=False)
class Downstream:
    """The stages that are planned together with the current stage, all after it.

    Attributes:
        frontier: of all these stages if ``graph`` is None; otherwise only its two ends, the fastest
            completion and the cheapest one.
        graph: for A*, if the stages are not series-parallel, or policy ``esg`` searches them.
        parts: for each stage of the graph from 1 on, the stages that it represents.
        refinement: computes the frontier of the graph; None without a graph and for policy ``esg``.
        epsilon: maximum relative excess over the minimum cost because of thinned frontiers.
    """

    frontier: Frontier
    graph: Graph | None = None
    parts: tuple[int, ...] = ()
    refinement: RefinementPass | None = None
    epsilon: float = 0.0

    @property
    def additive(self) -> bool:
        """True if A* uses the paper's bound."""
        return self.refinement is None

    @property
    def refined(self) -> RefinedFrontier | None:
        """The frontier of the graph, once it is complete."""
        return None if self.refinement is None else self.refinement.result

    @property
    def prepared(self) -> bool:
        """True if `step` has nothing to do."""
        return self.refinement is None or self.refinement.result is not None

    def step(self) -> None:
        """Do the next part of the preparation."""
        if self.refinement is not None:
            self.refinement.step()


class DownstreamBuilder:
    """Builds `Downstream` for the stages of one workflow, which share their frontiers."""

    def __init__(self, dag: Dag, expansions_max: int) -> None:
        self.dag = dag
        self._expansions_max = expansions_max
        self._frontiers: dict[int, Frontier] = {0: EMPTY}  # by set of stages

    def set_stage(self, stage: int, frontier: Frontier) -> None:
        """Set the frontier of one stage; required for all stages ahead before they are joined."""
        self._frontiers[1 << stage] = frontier

    def frontier(self, mask: int) -> Frontier:
        """Return the frontier of a set of stages that has been joined."""
        return self._frontiers[mask]

    def joined(self, stage: int, ahead: int) -> Downstream:
        """Join the stages ahead of a stage as far as possible."""
        modules = self._modules(ahead)
        if len(modules) <= 1:
            frontier = modules[0][1] if modules else EMPTY
            return Downstream(frontier, epsilon=frontier.epsilon)
        return self._searched(stage, modules, additive=False)

    def unjoined(self, stage: int, ahead: int) -> Downstream:
        """Leave the stages ahead of a stage as they are, for A* with the paper's bound."""
        if ahead == 0:
            return Downstream(EMPTY)
        return self._searched(
            stage, [(1 << v, self._frontiers[1 << v]) for v in members(ahead)], additive=True
        )

    def _searched(self, stage: int, modules: list[Module], *, additive: bool) -> Downstream:
        modules.sort(key=lambda module: self.dag.preceding[_first(module[0])].bit_count())
        dag = self.dag.reduced([stage, *(_first(mask) for mask, _ in modules)])
        frontiers = [frontier for _, frontier in modules]
        graph = graph_of(dag, frontiers, additive=additive)
        ends = _ends(graph, dag, frontiers, self._expansions_max)
        epsilon = max(f.epsilon for f in frontiers)
        refinement = None if additive else RefinementPass(graph, self._expansions_max)
        return Downstream(ends, graph, tuple(mask for mask, _ in modules), refinement, epsilon)

    def _modules(self, mask: int) -> list[Module]:
        """Return the smallest number of modules that each have one frontier."""
        if mask in self._frontiers:
            return [(mask, self._frontiers[mask])]
        composition, masks = decompose(self.dag, mask)
        if composition is Composition.SERIES:
            rest = mask & ~masks[0]
            parts = [self._modules(masks[0]), self._modules(rest)]
        else:
            parts = [self._modules(part) for part in masks]
        if composition is Composition.PRIME or any(len(part) > 1 for part in parts):
            return [module for part in parts for module in part]
        join = in_series if composition is Composition.SERIES else in_parallel
        return self._join(mask, join, [part[0][1] for part in parts])

    def _join(
        self, mask: int, join: Callable[[Frontier, Frontier], Frontier], parts: list[Frontier]
    ) -> list[Module]:
        whole = parts[0]
        for part in parts[1:]:
            whole = join(whole, part)
        self._frontiers[mask] = whole
        return [(mask, whole)]


def _ends(graph: Graph, dag: Dag, frontiers: Sequence[Frontier], expansions_max: int) -> Frontier:
    """Return the fastest completion, at the lowest cost found, and the cheapest one."""
    fastest_ms = float(graph.after_ms[0])
    empty = np.zeros(1)
    run = run_astar(graph, Query(empty, empty, fastest_ms * (1.0 + ROUNDING), expansions_max), 1)
    cost = float(run.best.cost[0])
    cheapest_ms = dag.longest_after([0.0, *(float(f.time_ms[-1]) for f in frontiers)])[0]
    cheapest_cost = float(graph.row_cost[0])
    epsilon = (1.0 + max(f.epsilon for f in frontiers)) * (1.0 + run.epsilon(1)) - 1.0
    if cost <= cheapest_cost:
        return Frontier(np.array([fastest_ms]), np.array([cost]), epsilon)
    return Frontier(np.array([fastest_ms, cheapest_ms]), np.array([cost, cheapest_cost]), epsilon)


def _first(mask: int) -> int:
    return next(members(mask))
