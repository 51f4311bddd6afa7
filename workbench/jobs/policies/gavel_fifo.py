"""First in, first out in rounds of time shares, as in the public simulator of Gavel.

Jobs are admitted in order of arrival while a GPU is free, also the first one that needs more GPUs
than are free: it then takes turns with the others.
"""

from collections.abc import Mapping, Sequence

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.job import ThroughputJob
from workbench.jobs.time_shares import TimeSharePolicy


class GavelFifo(TimeSharePolicy):
    """Full shares by arrival."""

    def time_shares(
        self,
        now_s: float,  # noqa: ARG002
        jobs: Sequence[ThroughputJob],
        cluster: TrainingCluster,
    ) -> Mapping[str, float]:
        """Return full shares for the first jobs."""
        free_gpus = cluster.gpus
        shares_ratio = {}
        for job in sorted(jobs, key=lambda job: job.submit_s):
            if free_gpus <= 0:
                break
            shares_ratio[job.name] = 1.0
            free_gpus -= job.gpus
        return shares_ratio
