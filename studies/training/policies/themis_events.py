"""Themis for a clock of events: shares at each arrival and end, and the job furthest behind first.

The form of Muri's public simulator (SIGCOMM 2022) of Mahajan et al., NSDI 2020: shares of the
smallest worst finish-time fairness, without an auction and without rounds. An equal part of the
cluster is a whole number of GPUs. A job is on one node, or on whole nodes if it is larger than one.
"""

from math import ceil, inf

from studies.training.finish_time_fairness import FairShares
from studies.training.free_gpus import FreeGpus
from studies.training.job import JobPlacement, PredictableJob
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy


class ThemisEvents(TrainingPolicy[PredictableJob]):
    """Shares over the time that was received, largest first."""

    needs = (PredictableJob,)

    def __init__(self, parameters: RunParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._fair = FairShares()

    def decide(self, state: JobsState[PredictableJob]) -> Placements:
        """Place all jobs again that fit in order of urgency, large ones first."""
        now_s, jobs, cluster = state.now_s, state.jobs, state.cluster
        part_gpus = ceil(cluster.gpus / len(jobs))
        parts_ratio = {job.name: min(1.0, part_gpus / job.gpus) for job in jobs}
        shares_ratio = self._fair.shares(now_s, jobs, cluster, parts_ratio)

        def urgency(job: PredictableJob) -> tuple[float, float]:
            ratio = shares_ratio[job.name]
            return (ratio / job.executed_s if job.executed_s else inf), ratio

        free = FreeGpus(cluster)
        ordered = sorted(jobs, key=urgency, reverse=True)
        fitting = [job for job in ordered if free.take_consolidated(job.gpus)]
        fitting.sort(key=lambda job: -job.gpus)
        free = FreeGpus(cluster)
        placed = {job.name: free.take_consolidated(job.gpus) for job in fitting}
        return {name: JobPlacement(gpus) for name, gpus in placed.items() if gpus}
