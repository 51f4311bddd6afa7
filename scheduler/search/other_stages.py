"""Other stages of an instance when one of its stages is planned: all that have not ended.

They are described by their **frontier**: the lowest cost by the time that remains when the planned
stage has ended. Stages behind the planned one share that time. Siblings, which run in parallel with
it, begin now, so their cost depends on the slack of the request as well: with S left, siblings that
join the path of the planned stage r ms before the end may take S - r.

The planned stage and the others form a series-parallel order in most workflows. Levels lead from
the whole instance to the planned stage: at each, either something follows in series (frontiers are
joined) or something runs in parallel (its cost is added, point by point). Any other order is
described by recorded completions (`CompletionSet`), of all stages behind a point in series: these
few sets are computed when the workflow is prepared, whatever the progress of an instance.
"""

import operator
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate
from typing import TypeVar

import numpy as np

from scheduler.search.chains.astar import StageChain
from scheduler.search.chains.astar_run import chain_of
from scheduler.search.dag import Composition, Dag, decompose
from scheduler.search.frontiers.frontier import (
    EMPTY,
    NEVER,
    Frontier,
    in_parallel,
    in_series,
    pareto,
)
from scheduler.search.reduction.completion_set import CompletionSet, Module
from scheduler.search.unfinished import UnfinishedStages

FRONTIERS_MAX = 2_048  # sets of stages, for one workflow on one fleet; then the oldest goes


@dataclass(frozen=True, slots=True, eq=False)
class OtherStages:
    """The other stages that are planned together with the current stage.

    Attributes:
        frontier: cost by the time that remains after the current stage; each point is a real
            completion within the slack.
        lower_bound: minimum cost by that time; no completion costs less. None: ``frontier`` is the
            minimum up to its epsilon.
        siblings_ms: shortest time from now on in which siblings that have not begun, and what
            follows them, can end.
        chain: these stages for A* with the paper's bounds (policy ``esg``); None: ``frontier``
            counts.
        minimum_dollars: lower bound of the cost of these stages and the current one.
    """

    frontier: Frontier
    lower_bound: Frontier | None = None
    siblings_ms: float = 0.0
    chain: StageChain | None = None
    minimum_dollars: float = 0.0

    def after(self, first: Frontier) -> "OtherStages":
        """Add stages between the current one and these."""
        return self._mapped(partial(in_series, first))

    def with_sibling(self, sibling: Frontier, limit_ms: float, *, has_begun: bool) -> "OtherStages":
        """Add stages that begin now and end where these begin.

        If some of them have begun, or may have, and are late whatever follows, no plan can help
        them: the others are planned as if they were in time.
        """
        others = self._mapped(partial(_with_sibling, sibling, limit_ms, has_begun=has_begun))
        if has_begun:
            return others
        end_ms = float(sibling.time_ms[0] + self.frontier.time_ms[0])
        return replace(others, siblings_ms=max(self.siblings_ms, end_ms))

    def _mapped(self, change: Callable[[Frontier], Frontier]) -> "OtherStages":
        """Apply a monotone change to the frontier and to its lower bound."""
        bound = self.lower_bound and change(self.lower_bound)
        return replace(self, frontier=change(self.frontier), lower_bound=bound)


def later_stages(frontiers: Sequence[Frontier]) -> OtherStages:
    """Return the later stages of a group, which run one after the other, for policy ``esg``."""
    if not frontiers:
        return OtherStages(EMPTY)
    return OtherStages(reduce(in_series, frontiers), chain=chain_of(frontiers))


class NotSeriesParallelError(ValueError):
    """A set of stages has no frontier of its own."""


class RemainingStages:
    """Frontiers of one workflow's stages on one fleet, cached by set of stages."""

    def __init__(self, dag: Dag, stage_frontier: Callable[[int], Frontier]) -> None:
        self._dag = dag
        self._stage_frontier = stage_frontier
        self._frontiers: OrderedDict[int, tuple[Frontier | None]] = OrderedDict()
        self._levels: OrderedDict[tuple[int, int], tuple[list[_Level] | None]] = OrderedDict()
        self._completion_sets: dict[int, CompletionSet] = {}
        self._suffixes = _suffixes(dag)

    def others(self, stage: int, unfinished: UnfinishedStages, limit_ms: float) -> OtherStages:
        """Return the other unfinished stages of an instance.

        Args:
            stage: the current stage.
            unfinished: all stages that have not ended.
            limit_ms: time for all of them from now on; inf without a limit.
        """
        try:
            levels = self._levels_to(stage, unfinished.mask)
            return self._folded(levels, OtherStages(EMPTY), unfinished, limit_ms)
        except NotSeriesParallelError:
            suffix = next(mask for mask in self._suffixes if mask >> stage & 1)
            completions = self._completion_set(suffix)
            own = completions.module(stage)
            outside = OtherStages(
                *completions.outside(own, unfinished, limit_ms, self._timed),
                minimum_dollars=completions.minimum_dollars(unfinished, limit_ms),
            )
            levels = self._levels_to(stage, completions.masks[own] & unfinished.mask)
            return self._folded(levels, outside, unfinished, limit_ms)

    def _folded(
        self,
        levels: "list[_Level]",
        others: OtherStages,
        unfinished: UnfinishedStages,
        limit_ms: float,
    ) -> OtherStages:
        """Extend the other stages level by level, from the outermost to the innermost."""
        for number, level in enumerate(levels):
            if level.composition is Composition.SERIES:
                (mask,) = level.masks
                if number == 0 and others.frontier is EMPTY:
                    others = OtherStages(self._frontier(mask))
                else:
                    others = others.after(self._frontier(mask))
                continue
            for mask in level.masks:
                sibling = self._timed(mask, unfinished)
                has_begun = bool(mask & unfinished.begun)
                others = others.with_sibling(sibling, limit_ms, has_begun=has_begun)
        return others

    def _levels_to(self, stage: int, mask: int) -> "list[_Level]":
        """Return the levels from a set of stages to one of its first stages, outermost first."""
        return _cached(self._levels, (stage, mask), lambda: _levels(self._dag, stage, mask))

    def _frontier(self, mask: int) -> Frontier:
        """Return the frontier of stages of which none has begun, or raise if there is none.

        Stages that no joins describe have one if nothing else can run with them or after them.
        """
        return _cached(self._frontiers, mask, lambda: self._computed_frontier(mask))

    def _computed_frontier(self, mask: int) -> Frontier | None:
        try:
            return self._joined(mask)
        except NotSeriesParallelError:
            return self._completion_set(mask).whole if mask in self._suffixes else None

    def _joined(self, mask: int) -> Frontier:
        composition, parts = decompose(self._dag, mask)
        if composition is Composition.SINGLE:
            return self._stage_frontier(mask.bit_length() - 1)
        if composition is Composition.SERIES:
            return in_series(self._frontier(parts[0]), self._frontier(mask & ~parts[0]))
        if composition is Composition.PARALLEL:
            return reduce(in_parallel, map(self._frontier, parts))
        raise NotSeriesParallelError

    def _timed(self, mask: int, unfinished: UnfinishedStages) -> Frontier:
        """Return the frontier of stages of which some run, by the time from now on."""
        if not mask & unfinished.running:
            return self._frontier(mask)
        composition, parts = decompose(self._dag, mask)
        if composition is Composition.SINGLE:
            until_ms = unfinished.running_ms[mask.bit_length() - 1]
            return Frontier(np.array([until_ms]), np.zeros(1))
        if composition is Composition.SERIES:
            return in_series(self._timed(parts[0], unfinished), self._frontier(mask & ~parts[0]))
        if composition is Composition.PARALLEL:
            return reduce(in_parallel, (self._timed(part, unfinished) for part in parts))
        raise NotSeriesParallelError

    def _completion_set(self, mask: int) -> CompletionSet:
        """Return the completions of stages that are not series-parallel."""
        completions = self._completion_sets.get(mask)
        if completions is None:
            completions = CompletionSet(self._dag, self._split(mask))
            self._completion_sets[mask] = completions
        return completions

    def _split(self, mask: int) -> list[Module]:
        """Split a set of stages into the smallest number of modules that have a frontier."""
        composition, parts = decompose(self._dag, mask)
        if composition is Composition.SERIES:
            parts = [parts[0], mask & ~parts[0]]
        return [module for part in parts for module in self._modules(part)]

    def _modules(self, mask: int) -> list[Module]:
        try:
            return [Module(mask, self._frontier(mask))]
        except NotSeriesParallelError:
            return self._split(mask)


@dataclass(frozen=True, slots=True)
class _Level:
    """Stages that follow everything inside in series, or parts that run in parallel with it."""

    composition: Composition
    masks: list[int]


def _levels(dag: Dag, stage: int, mask: int) -> list[_Level] | None:
    """Return the levels from a set of stages to one of them; None if they are in another order."""
    levels = []
    while mask != 1 << stage:
        composition, parts = decompose(dag, mask)
        if composition is Composition.PRIME:
            return None
        inside = next(part for part in parts if part >> stage & 1)
        others = [part for part in parts if part != inside]
        masks = [sum(others)] if composition is Composition.SERIES else others
        levels.append(_Level(composition, masks))
        mask = inside
    return levels


def _suffixes(dag: Dag) -> list[int]:
    """Return the sets of stages behind each point in series, smallest first; the last has all."""
    mask = (1 << len(dag.before)) - 1
    composition, parts = decompose(dag, mask)
    if composition is not Composition.SERIES:
        return [mask]
    return list(accumulate(reversed(parts), operator.or_))


def _with_sibling(
    sibling: Frontier, limit_ms: float, after: Frontier, *, has_begun: bool
) -> Frontier:
    """Add the cost of a sibling that begins now and ends where ``after`` begins."""
    at = np.searchsorted(sibling.time_ms, limit_ms - after.time_ms, side="right") - 1
    within = at >= 0
    if has_begun and not within.any():
        within, at = np.ones_like(within), np.maximum(at, 0)
    if not within.any():
        return NEVER
    cost = after.cost[within] + sibling.cost[at[within]]
    frontier = pareto(after.time_ms[within], cost)
    return replace(frontier, epsilon=max(after.epsilon, sibling.epsilon))


_KeyT = TypeVar("_KeyT", bound=Hashable)
_ValueT = TypeVar("_ValueT")


def _cached(
    cache: OrderedDict[_KeyT, tuple[_ValueT | None]],
    key: _KeyT,
    compute: Callable[[], _ValueT | None],
) -> _ValueT:
    """Return a value, computed at its first use; raise if there is none. Threads may share it.

    An entry is a tuple, so that one lookup separates what is not cached from what does not exist.
    """
    entry = cache.get(key)
    if entry is None:
        entry = cache[key] = (compute(),)
        if len(cache) > FRONTIERS_MAX:
            cache.popitem(last=False)
    (value,) = entry
    if value is None:
        raise NotSeriesParallelError
    return value
