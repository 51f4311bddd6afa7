"""Fair shares for graphs of tasks: an equal number of executors each, as in Decima's simulator.

Source: the heuristic of Mao et al., SIGCOMM 2019. An executor stays with its job while that has a
task without an executor, also one whose parents still run. Otherwise it goes to the first job that
has such a task and fewer executors than their number over that of the jobs with such tasks, rounded
up.
"""

from math import ceil
from typing import ClassVar

from studies.training.idle_executors import ExecutorPolicy, IdleExecutor
from studies.training.job import DagJob


class DagFair(ExecutorPolicy):
    """Equal numbers of executors."""

    waits: ClassVar[bool] = True

    def choose(self, idle: IdleExecutor) -> DagJob | None:
        """Return the executor's job, or the first one that has less than its share."""
        limit = ceil(idle.executors / max(1, len(idle.candidates)))
        shares = (job for job in idle.candidates if idle.counts[job.name] < limit)
        return idle.holding_job or next(shares, None)
