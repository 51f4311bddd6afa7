"""AlloX: the shortest of the oldest waiting jobs get the free GPUs and keep their share.

Source: Le et al., EuroSys 2020, in the form of Shockwave's public simulator (NSDI 2023), for one
GPU model: there the matching of jobs to GPUs and places in line is the order of remaining times. A
job of several GPUs counts as one of the matching and gets the time of one GPU.
"""

from collections.abc import Mapping, Sequence

from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeShareParameters, TimeSharePolicy


class AlloXParameters(TimeShareParameters):
    """Waiting jobs that are considered."""

    oldest_ratio: float = Field(
        default=0.2, ge=0, le=1, description="part of the waiting jobs, the oldest"
    )


class AlloX(TimeSharePolicy):
    """Shortest remaining time first."""

    parameters_type = AlloXParameters

    def __init__(self, parameters: AlloXParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._matched_ratio: dict[str, float] = {}

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Match jobs to GPUs that no job of one GPU holds."""
        before_ratio = {job.name: self._matched_ratio.get(job.name, 0.0) for job in jobs}
        waiting = [job for job in jobs if before_ratio[job.name] < 1.0]
        free_gpus = max(0, cluster.gpus - (len(jobs) - len(waiting)))
        waiting.sort(key=lambda job: job.submit_s)
        oldest = int(self.parameters.oldest_ratio * len(waiting))
        waiting = waiting[: max(oldest, free_gpus)]
        waiting.sort(key=lambda job: job.remaining_s)
        matched_ratio = {job.name: 1.0 / job.gpus for job in waiting[:free_gpus]}
        self._matched_ratio = before_ratio | matched_ratio
        return self._matched_ratio
