"""Split of a workflow's SLO among its stages, by dominators and ANL; groups of stages.

A stage is on every path to the stages that it dominates, so they share one budget with it. Bottom
up over the dominator tree, ``len(v) = ANL(v) + the longest chain of its children's lengths``; a
child follows another one if a path leads from one to the other. Top down, a stage takes ``budget(v)
* ANL(v) / len(v)`` and passes the rest R to its children: child k gets ``R * len(k) / L_k``, with
L_k the longest chain through k. The entries are the children of a virtual root, whose R is the SLO.

No path from an entry to an exit takes more than the SLO, because the children on it form a chain.
In a series-parallel workflow some path takes all of it. In others, such as the N shape, the longest
chain need not be one path, and every path may leave a part of the SLO unused.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from scheduler.search.dag import Dag, members

ROOT = -1  # virtual, before all entries; lower than any stage, as a topological number must be


@dataclass(frozen=True, slots=True)
class Split:
    """Split of a workflow's SLO among its stages; all numbers are ratios of the SLO.

    Attributes:
        before_ratio: limit of everything before each stage: the latest deadline of its direct
            predecessors, 0 for an entry.
        own_ratio: part of each stage, above 0; its deadline is the sum of the two.
    """

    before_ratio: tuple[float, ...]
    own_ratio: tuple[float, ...]


def immediate_dominators(dag: Dag) -> tuple[int, ...]:
    """Return for each stage the last stage that is on every path to it, or ROOT.

    It is the stage where all predecessors meet on their way up the dominator tree (Cooper, Harvey,
    Kennedy, "A Simple, Fast Dominance Algorithm"). In topological order one pass is enough.
    """
    dominators: list[int] = []

    def meet(v: int, w: int) -> int:
        while v != w:
            v, w = min(v, w), dominators[max(v, w)]
        return v

    for stages in dag.before:
        dominator = reduce(meet, members(stages)) if stages else ROOT
        dominators.append(dominator)
    return tuple(dominators)


def split(dag: Dag, lengths: Sequence[float]) -> Split:
    """Split the SLO among the stages in proportion to their ANLs, which are above 0.

    Transitive edges do not count: a stage waits for the same stages with and without them.
    """
    order = _without_transitive_edges(dag)
    dominators = immediate_dominators(order)
    below: dict[int, float] = {}  # the longest chain of a stage's children
    through: dict[int, float] = {}  # the longest chain of siblings through a stage
    for v in (*reversed(range(len(dominators))), ROOT):
        children = [child for child, dominator in enumerate(dominators) if dominator == v]
        siblings = order.reduced(children)
        child_lengths = [lengths[child] + below[child] for child in children]
        preceding = siblings.longest_before(child_lengths)
        remaining = siblings.longest_after(child_lengths)
        below[v] = max(remaining, default=0.0)
        through.update((child, preceding[i] + remaining[i]) for i, child in enumerate(children))
    own: list[float] = []
    passed_on = {ROOT: 1.0}  # to a stage's children
    for v, dominator in enumerate(dominators):
        per_length = passed_on[dominator] / through[v]
        own.append(per_length * lengths[v])
        passed_on[v] = per_length * below[v]
    return Split(tuple(order.longest_before(own)), tuple(own))


def groups(dag: Dag, size: int) -> tuple[tuple[int, ...], ...]:
    """Divide the stages into groups of at most ``size``, in the order of their first stages.

    Each sequential run is cut from its start; no group crosses a fork or a join. Transitive edges
    do not count. Raises ValueError for a size below 1.
    """
    if size < 1:
        raise ValueError(f"a group of at most {size} stages is empty; use a size of 1 or more")
    order = _without_transitive_edges(dag)
    successors = Counter(p for stages in order.before for p in members(stages))
    result: list[list[int]] = []
    group_of: list[list[int]] = []
    for v, stages in enumerate(order.before):
        group: list[int] = []
        match list(members(stages)):
            case [p] if successors[p] == 1 and len(group_of[p]) < size:
                group = group_of[p]
            case _:
                result.append(group)
        group.append(v)
        group_of.append(group)
    return tuple(map(tuple, result))


def _without_transitive_edges(dag: Dag) -> Dag:
    return dag.reduced(range(len(dag.before)))
