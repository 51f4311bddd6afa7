"""Structure of a workflow: topological order, reachability, modules.

Sets of stages are bit masks in an int (bit v is stage v); a workflow has at most 32 stages.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from graphlib import TopologicalSorter
from typing import Self

from scheduler.model.documents import Workflow


def members(mask: int) -> Iterator[int]:
    """Iterate over the stages of a set by rising number."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True)
class Dag:
    """A DAG whose stages are numbered in topological order.

    Attributes:
        before: direct predecessors of each stage.
        preceding: all predecessors of each stage.
        following: all successors of each stage.
    """

    before: tuple[int, ...]
    preceding: tuple[int, ...]
    following: tuple[int, ...]

    @classmethod
    def of(cls, before: Sequence[Iterable[int]]) -> Self:
        """Create a DAG from the direct predecessors of each stage; they must have lower numbers."""
        count = len(before)
        direct = [sum({1 << p for p in stages}) for stages in before]
        preceding = [0] * count
        following = [0] * count
        for v in range(count):
            for p in members(direct[v]):
                preceding[v] |= preceding[p] | 1 << p
            for p in members(preceding[v]):
                following[p] |= 1 << v
        return cls(tuple(direct), tuple(preceding), tuple(following))

    def related(self, stage: int) -> int:
        """Return all predecessors and successors of a stage."""
        return self.preceding[stage] | self.following[stage]

    def reduced(self, representatives: Sequence[int]) -> "Dag":
        """Return the order among some stages, numbered as listed, without transitive edges."""
        number = {stage: i for i, stage in enumerate(representatives)}
        within = sum(1 << stage for stage in representatives)
        before: list[list[int]] = []
        for stage in representatives:
            all_before = self.preceding[stage] & within
            direct = all_before
            for p in members(all_before):
                direct &= ~self.preceding[p]
            before.append([number[p] for p in members(direct)])
        return Dag.of(before)

    def paths(self, mask: int) -> int:
        """Count the paths from the first to the last ones of a set of stages."""
        order = self.reduced(list(members(mask)))
        count: list[int] = []
        for before in order.before:
            count.append(sum(count[p] for p in members(before)) or 1)
        return sum(count[v] for v, following in enumerate(order.following) if not following)

    def longest_after(self, length: Sequence[float]) -> list[float]:
        """Return for each stage the longest path from it to an exit, including itself."""
        total = [0.0] * len(length)
        for v in reversed(range(len(length))):
            longest = max((total[s] for s in members(self.following[v])), default=0.0)
            total[v] = length[v] + longest
        return total

    def longest_before(self, length: Sequence[float]) -> list[float]:
        """Return for each stage the longest path that ends directly before it."""
        total = [0.0] * len(length)
        for v in range(len(length)):
            total[v] = max((total[p] + length[p] for p in members(self.preceding[v])), default=0.0)
        return total


class Composition(Enum):
    """Relation between the parts of a set of stages."""

    SINGLE = "one stage"
    SERIES = "each part precedes the next"
    PARALLEL = "the parts are unordered"
    PRIME = "neither"


def decompose(dag: Dag, mask: int) -> tuple[Composition, list[int]]:
    """Split a set of stages into its modules (Gallai's modular decomposition of the order).

    All stages of a module have the same relation to every stage outside, so a module acts as one
    stage whose options are its frontier. A workflow without PRIME sets is series-parallel.
    """
    if mask & (mask - 1) == 0:
        return Composition.SINGLE, [mask]
    parts = _components(mask, dag.related)
    if len(parts) > 1:
        return Composition.PARALLEL, parts
    parts = _components(mask, lambda v: ~dag.related(v) & ~(1 << v))
    if len(parts) > 1:
        return Composition.SERIES, sorted(
            parts, key=lambda part: (dag.preceding[next(members(part))] & mask).bit_count()
        )
    parts = []
    unassigned = mask
    for v in members(mask):
        if unassigned >> v & 1:
            part = 1 << v
            for w in members(unassigned & ~part):
                if (module := _smallest_module(dag, mask, 1 << v | 1 << w)) != mask:
                    part |= module
            parts.append(part)
            unassigned &= ~part
    return Composition.PRIME, parts


def _components(mask: int, neighbours: Callable[[int], int]) -> list[int]:
    parts = []
    unassigned = mask
    while unassigned:
        part = 0
        reached = unassigned & -unassigned
        while reached:
            v = next(members(reached))
            part |= 1 << v
            reached = (reached | neighbours(v) & mask) & ~part
        parts.append(part)
        unassigned &= ~part
    return parts


def _smallest_module(dag: Dag, mask: int, module: int) -> int:
    """Extend a set by every stage whose relation to two of its members differs."""
    grown = True
    while grown:
        grown = False
        for w in members(mask & ~module):
            before, after = dag.preceding[w] & module, dag.following[w] & module
            if (before and before != module) or (after and after != module):
                module |= 1 << w
                grown = True
    return module


def numbered(workflow: Workflow) -> tuple[tuple[str, ...], Dag]:
    """Return a workflow's stage names in topological order, ties as written, and its DAG."""
    listed = [stage.name for stage in workflow.spec.stages]
    after = {stage.name: stage.after for stage in workflow.spec.stages}
    sorter = TopologicalSorter(after)
    sorter.prepare()
    names: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=listed.index)
        names.extend(ready)
        sorter.done(*ready)
    number = {name: i for i, name in enumerate(names)}
    return tuple(names), Dag.of([[number[p] for p in after[name]] for name in names])
