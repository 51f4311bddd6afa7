"""Isolated: each job has the time that an equal part of the cluster would give it.

Gavel's baseline (OSDI 2020): with n jobs, a job of s GPUs runs min(1, GPUs / (n s)) of the time.
"""

from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeSharePolicy


class Isolated(TimeSharePolicy):
    """Equal parts of the cluster."""

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return each job's equal part of the GPUs over those that it requests."""
        return {job.name: min(1.0, cluster.gpus / (len(jobs) * job.gpus)) for job in jobs}
