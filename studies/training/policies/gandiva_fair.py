"""Gandiva-fair: every job has the same share of time, whatever number of GPUs it requests.

Source: Chaudhary et al., EuroSys 2020, in the form of Shockwave's public simulator (NSDI 2023),
without trading between GPU models.
"""

from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeSharePolicy


class GandivaFair(TimeSharePolicy):
    """Equal time."""

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return GPUs over jobs, at most 1."""
        return {job.name: min(1.0, cluster.gpus / len(jobs)) for job in jobs}
