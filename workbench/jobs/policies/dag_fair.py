"""Fair shares for graphs of tasks: an equal number of executors each, as in Decima's simulator.

Source: the heuristic of Mao et al., SIGCOMM 2019. A job has at most the number of executors over
that of unfinished jobs, rounded up, and an executor stays with its job below that. What is left
goes to the job with fewest executors.
"""

from collections.abc import Sequence
from math import ceil

from workbench.jobs.idle_executors import ExecutorPolicy
from workbench.jobs.job import DagJob


class DagFair(ExecutorPolicy):
    """Equal numbers of executors."""

    def choose(
        self,
        candidates: Sequence[DagJob],
        counts: dict[str, int],
        holder: str | None,
        executors: int,
    ) -> DagJob:
        """Return the executor's job, or the one with fewest executors."""
        limit = ceil(executors / len(counts))
        for job in candidates:
            if job.name == holder and counts[holder] < limit:
                return job
        return min(candidates, key=lambda job: counts[job.name])
