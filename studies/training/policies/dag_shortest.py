"""Shortest remaining time first for graphs of tasks: the teacher of the distilled tree.

The remaining time of a job is its critical path, or its work over all executors if that is longer,
and the delay of an executor that would have to move.
"""

from pydantic import Field

from studies.training.idle_executors import ExecutorPolicy, IdleExecutor
from studies.training.job import DagJob
from studies.training.policy import RunParameters


class DagShortestParameters(RunParameters):
    """Cost of a move."""

    move_s: float = Field(default=2.0, ge=0, description="delay of an executor of another job")


class DagShortest(ExecutorPolicy):
    """Every executor to the job that could end first."""

    parameters_type = DagShortestParameters

    def choose(self, idle: IdleExecutor) -> DagJob | None:
        """Return the job with the shortest remaining time."""

        def remaining_s(job: DagJob) -> float:
            move_s: float = 0.0 if job.name == idle.holder else self.parameters.move_s
            return move_s + max(job.critical_path_s, job.remaining_work_s / idle.executors)

        return min(idle.candidates, key=remaining_s, default=None)
