"""Earliest deadline first, preemptive; jobs without a deadline come last, in order of arrival.

A job that does not fit does not block others, and one that is late stays first.
"""

from collections.abc import Sequence

from studies.training.job import DeadlineJob
from studies.training.ordered import OrderedPolicy


class Edf(OrderedPolicy[DeadlineJob]):
    """Order by deadline."""

    needs = (DeadlineJob,)

    def order(self, jobs: Sequence[DeadlineJob]) -> list[DeadlineJob]:
        """Return the jobs by deadline, then by arrival."""
        return sorted(jobs, key=lambda job: (job.deadline_s, job.submit_s))
