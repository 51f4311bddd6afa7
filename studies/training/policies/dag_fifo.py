"""First in, first out for graphs of tasks: Spark's default in Decima's simulator (SIGCOMM 2019).

An executor stays with its job while that has a task without an executor, also one whose parents
still run.
"""

from typing import ClassVar

from studies.training.idle_executors import ExecutorPolicy, IdleExecutor
from studies.training.job import DagJob


class DagFifo(ExecutorPolicy):
    """Executors that their jobs do not need, to the first job that has a task."""

    waits: ClassVar[bool] = True

    def choose(self, idle: IdleExecutor) -> DagJob | None:
        """Return the executor's job, or the first one."""
        return idle.holding_job or next(iter(idle.candidates), None)
