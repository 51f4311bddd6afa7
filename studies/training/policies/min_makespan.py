"""Minimal makespan: shares by which all jobs end at the same time, as early as that is possible.

Gavel's policy (OSDI 2020) in closed form: a job that needs r more seconds runs r / M of the time,
where M is the longest such r, or the work of all jobs over the GPUs if that is longer.
"""

from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeSharePolicy


class MinMakespan(TimeSharePolicy):
    """Shares proportional to the remaining times."""

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return remaining times over the makespan."""
        work_gpu_s = sum(job.remaining_s * job.gpus for job in jobs)
        makespan_s = max(work_gpu_s / cluster.gpus, *(job.remaining_s for job in jobs), 1e-9)
        return {job.name: job.remaining_s / makespan_s for job in jobs}
