"""Features by which a small tree prefers one job of tasks to another one."""

from collections.abc import Mapping
from math import log
from typing import NamedTuple

from studies.training.job import DagJob


class PairFeatures(NamedTuple):
    """Logarithms of ratios of a first job to a second one; 0: equal.

    Attributes:
        tasks_ratio: ratio of the numbers of open tasks.
        task_ratio: ratio of the mean times of these tasks.
        work_ratio: product of both.
        path_ratio: ratio of the critical paths.
        executors_ratio: ratio of the numbers of executors, one added to each.
        source_ratio: 1 if the executor comes from the first job, -1 if from the second one; else 0.
    """

    tasks_ratio: float
    task_ratio: float
    work_ratio: float
    path_ratio: float
    executors_ratio: float
    source_ratio: float


class TreeSplit(NamedTuple):
    """Inner node of a tree; a leaf is true where the first job is preferred."""

    feature: str
    limit_ratio: float
    below: "TreeSplit | bool"  # the feature is at most the limit
    above: "TreeSplit | bool"


def pair_features(
    first: DagJob, second: DagJob, counts: Mapping[str, int], holder: str | None
) -> PairFeatures:
    """Compare two jobs that have open tasks."""
    tasks_log = log(first.open_tasks / second.open_tasks)
    work_log = log(first.remaining_work_s / second.remaining_work_s)
    return PairFeatures(
        tasks_ratio=tasks_log,
        task_ratio=work_log - tasks_log,
        work_ratio=work_log,
        path_ratio=log(first.critical_path_s / second.critical_path_s),
        executors_ratio=log((1 + counts[first.name]) / (1 + counts[second.name])),
        source_ratio=float(first.name == holder) - float(second.name == holder),
    )


def prefers_first(features: PairFeatures, tree: "TreeSplit | bool") -> bool:
    """Follow a tree to its leaf."""
    while isinstance(tree, TreeSplit):
        value: float = getattr(features, tree.feature)
        tree = tree.below if value <= tree.limit_ratio else tree.above
    return tree
