"""Themis: the worst finish-time fairness is as small as it can be.

Source: Mahajan et al., NSDI 2020, in Gavel's form without an auction.
"""

from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.finish_time_fairness import FairShares
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeShareParameters, TimeSharePolicy


class Themis(TimeSharePolicy):
    """Shares of the smallest worst fairness."""

    def __init__(self, parameters: TimeShareParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._fair = FairShares()

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return the shares; an equal part is that of the isolated policy."""
        parts_ratio = {job.name: min(1.0, cluster.gpus / (len(jobs) * job.gpus)) for job in jobs}
        return self._fair.shares(now_s, jobs, cluster, parts_ratio)
