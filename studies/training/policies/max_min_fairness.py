"""Max-min fairness: the least GPU time, over the weight of its job, is as large as it can be.

Least attained service as Gavel states it (OSDI 2020): maximise min x s / weight, where a job of s
GPUs runs x of the time. What the jobs at their limit leave goes to no one: the rounds use it.
"""

from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeSharePolicy


class MaxMinFairness(TimeSharePolicy):
    """The same GPU time per weight for each job that can use it."""

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return shares proportional to weights over GPUs, at most 1."""
        weights_ratio = sum(job.weight_ratio for job in jobs)
        return {
            job.name: min(1.0, cluster.gpus * job.weight_ratio / (weights_ratio * job.gpus))
            for job in jobs
        }
