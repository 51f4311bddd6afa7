"""Features by which a small tree prefers one job of tasks to another one."""

from math import log
from typing import NamedTuple

from workbench.jobs.job import DagJob


class PairFeatures(NamedTuple):
    """Logarithms of ratios of a first job to a second one; 0: equal.

    Attributes:
        tasks: open tasks.
        task_s: mean time of these.
        work: product of both.
        path: critical path.
        held: executors, and one.
        source: 1: the executor comes from the first job; -1: from the second one.
    """

    tasks: float
    task_s: float
    work: float
    path: float
    held: float
    source: float


class Split(NamedTuple):
    """Inner node of a tree; a leaf is true where the first job is preferred."""

    feature: str
    limit: float
    below: "Split | bool"  # the feature is at most the limit
    above: "Split | bool"


def pair_features(
    first: DagJob, second: DagJob, counts: dict[str, int], holder: str | None
) -> PairFeatures:
    """Compare two jobs that have open tasks."""
    tasks_log = log(first.open_tasks / second.open_tasks)
    work_log = log(first.remaining_work_s / second.remaining_work_s)
    return PairFeatures(
        tasks=tasks_log,
        task_s=work_log - tasks_log,
        work=work_log,
        path=log(first.critical_path_s / second.critical_path_s),
        held=log((1 + counts[first.name]) / (1 + counts[second.name])),
        source=float(first.name == holder) - float(second.name == holder),
    )


def prefers_first(features: PairFeatures, tree: "Split | bool") -> bool:
    """Follow a tree to its leaf."""
    while isinstance(tree, Split):
        value: float = getattr(features, tree.feature)
        tree = tree.below if value <= tree.limit else tree.above
    return tree
