"""The shape of a workflow: topological order, what follows what, modules, chains.

Sets of stages are bit masks in an int (bit v is stage v), for a workflow has at most 32 stages.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from graphlib import TopologicalSorter
from typing import Self

from scheduler.model.documents import Workflow


def members(mask: int) -> Iterator[int]:
    """The stages of a set, by rising number."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True)
class Dag:
    """A DAG whose stages are numbered in a topological order.

    Attributes:
        before: for each stage, the stages right before it.
        preceding: for each stage, all stages before it.
        following: for each stage, all stages after it.
    """

    before: tuple[int, ...]
    preceding: tuple[int, ...]
    following: tuple[int, ...]

    @classmethod
    def of(cls, before: Sequence[Iterable[int]]) -> Self:
        """From the stages right before each stage; their numbers must be lower than its own."""
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
        """All stages before or after a stage."""
        return self.preceding[stage] | self.following[stage]

    def reduced(self, representatives: Sequence[int]) -> "Dag":
        """The order among these stages alone, numbered as given, without shortcuts."""
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

    def longest_after(self, length: Sequence[float]) -> list[float]:
        """For each stage the longest path from it to an exit, itself included."""
        total = [0.0] * len(length)
        for v in reversed(range(len(length))):
            rest = max((total[s] for s in members(self.following[v])), default=0.0)
            total[v] = length[v] + rest
        return total

    def longest_before(self, length: Sequence[float]) -> list[float]:
        """For each stage the longest path that ends right before it."""
        total = [0.0] * len(length)
        for v in range(len(length)):
            total[v] = max((total[p] + length[p] for p in members(self.preceding[v])), default=0.0)
        return total

    def chains(self, weight: Sequence[float]) -> list[list[int]]:
        """The stages split into chains, the heaviest first."""
        left = (1 << len(weight)) - 1
        chains = []
        while left:
            best: dict[int, tuple[float, int]] = {}
            for v in reversed(list(members(left))):
                options = [(best[s][0], s) for s in members(self.following[v] & left)]
                rest, successor = max(options, default=(0.0, -1))
                best[v] = (weight[v] + rest, successor)
            at = max(best, key=lambda v: best[v][0])
            chain = []
            while at >= 0:
                chain.append(at)
                left &= ~(1 << at)
                at = best[at][1]
            chains.append(chain)
        return chains


class Composition(Enum):
    """How the parts of a set of stages stand to one another."""

    SINGLE = "one stage"
    SERIES = "each part precedes the next"
    PARALLEL = "the parts do not touch"
    PRIME = "neither"


def decompose(dag: Dag, mask: int) -> tuple[Composition, list[int]]:
    """Split a set of stages into its modules (Gallai's modular decomposition of the order).

    A module's stages look alike to every stage outside, so a module acts as one stage whose options
    are its frontier. A workflow without PRIME sets is series-parallel.
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
    left = mask
    for v in members(mask):
        if left >> v & 1:
            part = 1 << v
            for other in members(left & ~part):
                if (module := _smallest_module(dag, mask, 1 << v | 1 << other)) != mask:
                    part |= module
            parts.append(part)
            left &= ~part
    return Composition.PRIME, parts


def _components(mask: int, neighbours: Callable[[int], int]) -> list[int]:
    parts = []
    left = mask
    while left:
        part = 0
        reached = left & -left
        while reached:
            v = next(members(reached))
            part |= 1 << v
            reached = (reached | neighbours(v) & mask) & ~part
        parts.append(part)
        left &= ~part
    return parts


def _smallest_module(dag: Dag, mask: int, module: int) -> int:
    """Grow a set by every stage that tells two of its members apart."""
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
    """The names of a workflow's stages in topological order, ties as written, and its DAG."""
    written = [stage.name for stage in workflow.spec.stages]
    after = {stage.name: stage.after for stage in workflow.spec.stages}
    sorter = TopologicalSorter(after)
    sorter.prepare()
    names: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=written.index)
        names.extend(ready)
        sorter.done(*ready)
    number = {name: i for i, name in enumerate(names)}
    return tuple(names), Dag.of([[number[p] for p in after[name]] for name in names])
