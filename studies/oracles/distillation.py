"""Distil the policy ``dag-shortest`` into a small tree that compares two jobs.

    python -m studies.oracles.distillation

Logs the choices of the teacher on generated jobs, grows a tree of pairs by Gini impurity, prints it
for ``studies/training/policies/dag_tree.py``, and its fidelity: the share of equal choices on seeds
that it has not seen.
"""

import sys
from collections.abc import Iterable
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from studies.training.engine import simulate_jobs
from studies.training.environment import WorkloadSource
from studies.training.environments.executors import ExecutorEnvironment, ExecutorParameters
from studies.training.idle_executors import IdleExecutor
from studies.training.job import DagJob
from studies.training.pair_features import PairFeatures, TreeSplit, pair_features
from studies.training.policies.dag_shortest import DagShortest, DagShortestParameters
from studies.training.policies.dag_tree import DagTree, preferred_job
from studies.training.policy import RunParameters

TRAINING_SEEDS, HELD_OUT_SEEDS = range(4), (42, 43, 44)
_DEPTH = 4
_LEAF_ROWS = 50
_LIMITS = 40  # candidates of a split, by quantiles


class LoggedTeacher(DagShortest):
    """The teacher, with its choices as pairs, and how often the tree chooses the same."""

    def __init__(self) -> None:
        super().__init__(DagShortestParameters(), 0)
        self.rows: list[PairFeatures] = []
        self.preferred: list[bool] = []
        self.equal: list[bool] = []
        self.tree = DagTree(RunParameters(), 0)

    def choose(self, idle: IdleExecutor) -> DagJob | None:
        """Choose as the teacher does."""
        best = super().choose(idle)
        if best is None:
            return None
        if len(idle.candidates) > 1:
            self.equal.append(preferred_job(idle) is best)
        for job in idle.candidates:
            if job is not best:
                self.rows.append(pair_features(best, job, idle.counts, idle.holder))
                self.rows.append(pair_features(job, best, idle.counts, idle.holder))
                self.preferred += [True, False]
        return best


def logged(seeds: Iterable[int]) -> list[LoggedTeacher]:
    """Run the teacher on generated jobs."""
    teachers = []
    for seed in seeds:
        environment = ExecutorEnvironment.load(ExecutorParameters(), WorkloadSource(seed=seed))
        teachers.append(LoggedTeacher())
        simulate_jobs(environment, teachers[-1], "dag-shortest")
    return teachers


def fidelity_ratio() -> float:
    """Return the share of equal choices on seeds that were not used for training."""
    return fmean(equal for teacher in logged(HELD_OUT_SEEDS) for equal in teacher.equal)


def grown(rows: NDArray[np.float64], preferred: NDArray[np.bool_], depth: int) -> TreeSplit | bool:
    """Grow a tree; a leaf is the choice of most of its rows."""
    majority = bool(preferred.mean() >= 1 / 2)
    if depth == 0 or preferred.all() or not preferred.any():
        return majority
    best = (_impurity_ratio(preferred), -1, 0.0)
    for column in range(rows.shape[1]):
        for limit in np.unique(np.quantile(rows[:, column], np.linspace(0, 1, _LIMITS))):
            below = rows[:, column] <= limit
            if min(below.sum(), (~below).sum()) >= _LEAF_ROWS:
                impurity = _impurity_ratio(preferred[below]) + _impurity_ratio(preferred[~below])
                best = min(best, (impurity, column, float(limit)))
    _, column, limit = best
    if column < 0:
        return majority
    below = rows[:, column] <= limit
    branches = [grown(rows[part], preferred[part], depth - 1) for part in (below, ~below)]
    if isinstance(branches[0], bool) and branches[0] == branches[1]:
        return branches[0]
    return TreeSplit(PairFeatures._fields[column], round(limit, 3), *branches)


def _impurity_ratio(preferred: NDArray[np.bool_]) -> float:
    ratio = float(preferred.mean())
    return len(preferred) * ratio * (1 - ratio)


def main() -> int:
    """Grow the tree and print both."""
    teachers = logged(TRAINING_SEEDS)
    rows = np.array([row for teacher in teachers for row in teacher.rows])
    preferred = np.array([choice for teacher in teachers for choice in teacher.preferred])
    print(grown(rows, preferred, _DEPTH))
    print(f"fidelity of the tree in dag_tree.py: {fidelity_ratio():.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
