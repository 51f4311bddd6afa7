"""Recorded completions of stages whose order is not series-parallel.

Joins give no frontier of such stages, because the time of one branch limits the times of others.
They are split into **modules**, sets of stages that act as one, and node reduction finds the
frontier of all stages; each of its points is a completion, one point of each module's frontier. The
same completions serve when some of the stages have begun: the modules that can begin at once take
what their own window allows, the others what was recorded.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.search.dag import Dag, members
from scheduler.search.frontiers.arrays import Floats
from scheduler.search.frontiers.frontier import EMPTY, NEVER, Frontier, pareto
from scheduler.search.reduction.event_network import EventNetwork
from scheduler.search.reduction.node_reduction import NEAR_RATIO, reduced_frontier
from scheduler.search.reduction.time_prices import prices_of_time
from scheduler.search.unfinished import UnfinishedStages


class Module(NamedTuple):
    """Stages that act as one stage, and their frontier."""

    mask: int
    frontier: Frontier


class CompletionSet:
    """Completions of a set of stages.

    Attributes:
        masks: stages of each module, in topological order of the modules.
        whole: frontier of all stages.
    """

    def __init__(self, dag: Dag, modules: Sequence[Module]) -> None:
        ordered = sorted(modules, key=lambda m: dag.preceding[_first(m.mask)].bit_count())
        self.masks = tuple(module.mask for module in ordered)
        self._frontiers = [module.frontier for module in ordered]
        self._epsilon = max(frontier.epsilon for frontier in self._frontiers)
        self._order = dag.reduced([_first(mask) for mask in self.masks])
        self.whole, options = reduced_frontier(self._order, self._frontiers)
        # The fastest completion is always one of them, so that none in time is missed.
        self._options = np.vstack([np.zeros(len(self.masks), np.int64), options])
        network = EventNetwork.of(self._order, [len(f.time_ms) for f in self._frontiers])
        order_arcs = [EMPTY] * (len(network.stages) - len(self._frontiers))
        prices = prices_of_time(network.arcs, [*self._frontiers, *order_arcs])
        self._price, self._flow = prices.price, prices.flow

    def module(self, stage: int) -> int:
        """Return the number of the module that contains a stage."""
        return next(i for i, mask in enumerate(self.masks) if mask >> stage & 1)

    def outside(
        self,
        own: int,
        unfinished: UnfinishedStages,
        limit_ms: float,
        timed: Callable[[int, UnfinishedStages], Frontier],
    ) -> tuple[Frontier, Frontier | None, float]:
        """Return the cost of all other modules by the time that remains after one of them.

        Args:
            own: module without unfinished predecessors.
            unfinished: all stages that have not ended.
            limit_ms: time for all of them from now on; inf without a limit.
            timed: function that returns the frontier of unfinished stages that begin now.

        Returns:
            The frontier; a lower bound of the cost, or None without a limit; and the shortest time
            in which the other modules that have not begun can end, apart from those that follow
            ``own``.
        """
        options = self._options
        in_time = np.ones(len(options), np.bool_)
        cost = np.zeros(len(options))
        path_ms: dict[int, Floats] = {}  # of unfinished modules, to the end of the last stage
        shortest_ms: dict[int, float] = {}  # the same, with every module at its fastest
        now: dict[int, Frontier] = {}  # of modules that begin at once
        for i in reversed(range(len(self.masks))):
            mask = self.masks[i] & unfinished.mask
            if not mask:
                continue
            successors = list(members(self._order.following[i]))
            after_ms = np.zeros(len(options))
            for successor in successors:
                np.maximum(after_ms, path_ms[successor], out=after_ms)
            if i == own:
                path_ms[i] = after_ms
                continue
            if any(self.masks[p] & unfinished.mask for p in members(self._order.preceding[i])):
                frontier, at = self._frontiers[i], options[:, i]
            else:
                frontier = now[i] = timed(mask, unfinished)
                at = np.searchsorted(frontier.time_ms, limit_ms - after_ms, side="right") - 1
                if not mask & unfinished.begun or at.max() >= 0:  # else nothing helps it
                    in_time &= at >= 0
                at = np.maximum(at, 0)
            path_ms[i] = frontier.time_ms[at] + after_ms
            shortest_after_ms = max((shortest_ms[s] for s in successors), default=0.0)
            shortest_ms[i] = float(frontier.time_ms[0]) + shortest_after_ms
            if i not in now and not self.masks[i] & unfinished.begun:
                in_time &= path_ms[i] <= limit_ms
            cost += frontier.cost[at]
        open_ms = (ms for i, ms in shortest_ms.items() if not self.masks[i] & unfinished.begun)
        siblings_ms = max(open_ms, default=0.0)
        if not in_time.any():
            return NEVER, None, siblings_ms
        points = pareto(path_ms[own][in_time], cost[in_time])
        frontier = Frontier(points.time_ms, points.cost, self._epsilon)
        if np.isinf(limit_ms):
            return frontier, None, siblings_ms
        bound = self._lower_bound(own, unfinished.mask, now, frontier, limit_ms)
        return frontier, bound, siblings_ms

    def minimum_dollars(self, unfinished: UnfinishedStages, limit_ms: float) -> float:
        """Return a lower bound of the cost of all stages if none of them has begun, else 0."""
        whole = self.whole
        at = np.searchsorted(whole.time_ms, limit_ms * (1.0 + NEAR_RATIO), side="right") - 1
        if at < 0 or unfinished.running or sum(self.masks) & ~unfinished.mask:
            return 0.0
        return float(whole.cost[at]) / (1.0 + whole.epsilon)

    def _lower_bound(
        self,
        own: int,
        unfinished: int,
        now: dict[int, Frontier],
        frontier: Frontier,
        limit_ms: float,
    ) -> Frontier:
        """Bound the cost of the other modules by the prices of time.

        With prices that are a flow through the order, no completion within T ms costs less than the
        sum over the modules of min(cost + price x time), less T times the total flow.
        """
        others = -self._flow * limit_ms
        for i, mask in enumerate(self.masks):
            if i == own or not mask & unfinished:
                continue
            points = now[i] if i in now else self._frontiers[i]
            priced = points.cost + self._price[:, i, None] * points.time_ms
            others = others + priced.min(axis=1)
        # Between two points of the frontier, the bound at the later one is the lower one.
        remaining_ms = np.append(frontier.time_ms[1:], limit_ms)
        own_ms = np.maximum(limit_ms - remaining_ms, 0.0)
        bound = (others[:, None] + self._price[:, own, None] * own_ms).max(axis=0)
        return Frontier(frontier.time_ms, np.clip(bound, 0.0, frontier.cost))


def _first(mask: int) -> int:
    return next(members(mask))
