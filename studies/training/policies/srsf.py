"""Shortest remaining service first: remaining time times GPUs, preemptive.

Of equal jobs the newest is first, as in the public simulator of Tiresias. A job that does not fit
does not block others.
"""

from collections.abc import Sequence

from studies.training.job import PredictableJob
from studies.training.ordered import OrderedPolicy


class Srsf(OrderedPolicy[PredictableJob]):
    """Order by remaining GPU-seconds."""

    needs = (PredictableJob,)

    def order(self, jobs: Sequence[PredictableJob]) -> list[PredictableJob]:
        """Return the jobs by remaining service; of equal jobs the last one first."""
        return sorted(jobs[::-1], key=lambda job: job.remaining_s * job.gpus)  # noqa: C415 - as the docstring says
