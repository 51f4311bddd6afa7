"""Largest sum of throughputs: full shares to the jobs with most steps per second and GPU.

Gavel's policy (OSDI 2020): the linear program has one constraint besides the limits of the shares,
so the greedy choice is its solution. Jobs of few steps per second wait.
"""

from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeSharePolicy


class MaxThroughput(TimeSharePolicy):
    """Greedy by steps per second and GPU."""

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return full shares while there are GPUs, then what is left."""
        free_gpus = float(cluster.gpus)
        shares_ratio = {}
        for job in sorted(jobs, key=lambda job: -job.throughput_rps() / job.gpus):
            shares_ratio[job.name] = min(1.0, free_gpus / job.gpus)
            free_gpus -= shares_ratio[job.name] * job.gpus
        return shares_ratio
