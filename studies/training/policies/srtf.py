"""Shortest remaining time first, preemptive.

Of equal jobs the newest is first, as in the public simulator of Tiresias. A job that does not fit
does not block others.
"""

from collections.abc import Sequence

from studies.training.job import PredictableJob
from studies.training.ordered import OrderedPolicy


class Srtf(OrderedPolicy[PredictableJob]):
    """Order by remaining time."""

    needs = (PredictableJob,)

    def order(self, jobs: Sequence[PredictableJob]) -> list[PredictableJob]:
        """Return the jobs by remaining time; of equal jobs the last one first."""
        return sorted(jobs[::-1], key=lambda job: job.remaining_s)  # noqa: C415 - as the docstring says
