"""How a workflow's SLO is split: each stage's own part, by dominators and ANL; groups of stages.

A stage stands on every way to those that it dominates, so they share one budget with it. Over the
dominator tree, bottom up, ``len(v) = ANL(v) + the longest chain of its children's lengths``; a
child follows another where a path leads from one to the other. Top down, a stage keeps ``budget(v)
* ANL(v) / len(v)`` and leaves the rest R to its children: child k gets ``R * len(k) / L_k``, L_k
being the longest chain through k. The entries are the children of a virtual root, whose R is the
SLO.

No path from an entry to an exit takes more than the SLO, for the children that it passes are a
chain. Where the workflow is series-parallel, some path takes all of it. In others, such as the N
shape, the longest chain need not be one path, and every path may leave a part of the SLO unused.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from scheduler.search.dag import Dag, members

ROOT = -1  # virtual, before all entries; lower than any stage, as a topological number must be


@dataclass(frozen=True, slots=True)
class Split:
    """A workflow's SLO, split among its stages; all numbers are ratios of the SLO.

    Attributes:
        before_ratio: for each stage, what all that comes before it may take: the latest deadline
            of its direct predecessors, 0 for an entry.
        own_ratio: for each stage, its own part, above 0; its deadline is the sum of the two.
    """

    before_ratio: tuple[float, ...]
    own_ratio: tuple[float, ...]


def immediate_dominators(dag: Dag) -> tuple[int, ...]:
    """For each stage the last stage before it that is on every way to it; ROOT where none is.

    It is where the predecessors meet when all walk up the dominator tree (Cooper, Harvey, Kennedy,
    "A Simple, Fast Dominance Algorithm"). In topological order one pass is enough.
    """
    dominators: list[int] = []

    def meet(one: int, other: int) -> int:
        while one != other:
            one, other = min(one, other), dominators[max(one, other)]
        return one

    for stages in dag.before:
        dominator = reduce(meet, members(stages)) if stages else ROOT
        dominators.append(dominator)
    return tuple(dominators)


def split(dag: Dag, lengths: Sequence[float]) -> Split:
    """Split the SLO among the stages, in proportion to their ANLs, which are above 0.

    Shortcuts do not count: a stage waits for the same stages with and without them.
    """
    order = _without_shortcuts(dag)
    dominators = immediate_dominators(order)
    below: dict[int, float] = {}  # the longest chain of a stage's children
    through: dict[int, float] = {}  # the longest chain of siblings through a stage
    for v in (*reversed(range(len(dominators))), ROOT):
        children = [child for child, dominator in enumerate(dominators) if dominator == v]
        siblings = order.reduced(children)
        each = [lengths[child] + below[child] for child in children]
        spent = siblings.longest_before(each)
        rest = siblings.longest_after(each)
        below[v] = max(rest, default=0.0)
        through.update((child, spent[i] + rest[i]) for i, child in enumerate(children))
    own: list[float] = []
    left = {ROOT: 1.0}  # to a stage's children
    for v, dominator in enumerate(dominators):
        per_length = left[dominator] / through[v]
        own.append(per_length * lengths[v])
        left[v] = per_length * below[v]
    return Split(tuple(order.longest_before(own)), tuple(own))


def groups(dag: Dag, size: int) -> tuple[tuple[int, ...], ...]:
    """The stages in groups of at most ``size``, in the order of their first stages.

    Each sequential run is cut from its start; no group crosses a fork or a join. Shortcuts do not
    count. Raises ValueError for a size below 1.
    """
    if size < 1:
        raise ValueError(f"a group of at most {size} stages holds none; give a size of 1 or more")
    order = _without_shortcuts(dag)
    ways_out = Counter(p for stages in order.before for p in members(stages))
    found: list[list[int]] = []
    group_of: list[list[int]] = []
    for v, stages in enumerate(order.before):
        group: list[int] = []
        match list(members(stages)):
            case [p] if ways_out[p] == 1 and len(group_of[p]) < size:
                group = group_of[p]
            case _:
                found.append(group)
        group.append(v)
        group_of.append(group)
    return tuple(map(tuple, found))


def _without_shortcuts(dag: Dag) -> Dag:
    return dag.reduced(range(len(dag.before)))
