"""A small tree that was distilled from a policy: readable, and almost as good.

In the way of the distilled form of Decima (SIGCOMM 2019), whose learned weights are not public: the
teacher is ``dag-shortest``, and ``python -m studies.oracles.distillation`` grows the tree from
its choices. The tree compares two jobs; the one that wins all its comparisons gets the executor.
"""

from studies.training.idle_executors import ExecutorPolicy, IdleExecutor
from studies.training.job import DagJob
from studies.training.pair_features import TreeSplit, pair_features, prefers_first

_FEWER_EXECUTORS = TreeSplit(
    "source_ratio",
    0.0,
    TreeSplit("path_ratio", -0.265, TreeSplit("work_ratio", -0.157, True, False), False),
    TreeSplit("work_ratio", 0.264, TreeSplit("path_ratio", 0.742, True, False), False),
)
_AS_MANY_EXECUTORS = TreeSplit(
    "path_ratio",
    0.817,
    TreeSplit("source_ratio", -1.0, TreeSplit("work_ratio", -0.25, True, False), True),
    TreeSplit("work_ratio", -0.537, TreeSplit("executors_ratio", 0.0, False, True), False),
)
TREE = TreeSplit("executors_ratio", -0.243, _FEWER_EXECUTORS, _AS_MANY_EXECUTORS)


class DagTree(ExecutorPolicy):
    """Every executor to the job that the tree prefers."""

    def choose(self, idle: IdleExecutor) -> DagJob | None:
        """Return the winner."""
        return preferred_job(idle) if idle.candidates else None


def preferred_job(idle: IdleExecutor) -> DagJob:
    """Compare the best job so far with each following one."""
    best = idle.candidates[0]
    for job in idle.candidates[1:]:
        if prefers_first(pair_features(job, best, idle.counts, idle.holder), TREE):
            best = job
    return best
