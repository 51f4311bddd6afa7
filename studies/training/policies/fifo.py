"""First in, first out: jobs run in order of arrival, and nothing passes one that does not fit."""

from collections.abc import Sequence
from typing import ClassVar

from studies.training.job import TrainingJob
from studies.training.ordered import OrderedPolicy


class Fifo(OrderedPolicy[TrainingJob]):
    """Order by arrival."""

    strict: ClassVar[bool] = True

    def order(self, jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
        """Return the jobs by arrival."""
        return sorted(jobs, key=lambda job: job.submit_s)
