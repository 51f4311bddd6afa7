"""Shortest job first without preemption, each job alone on its GPUs, and its form for sharing.

What SJF-FFS and SJF-BSBF share: the queue by remaining time, empty GPUs before shared ones, and
jobs that run on where they are. A job that does not fit does not block others.
"""

from collections.abc import Sequence

from pydantic import Field

from studies.training.job import JobPlacement, SharableJob
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy
from studies.training.shared_gpus import SharedGpus


class SjfParameters(RunParameters):
    """Form of the placement."""

    consolidated: bool = Field(
        default=False, description="one node is tried first, the one with the best fit"
    )


class Sjf(TrainingPolicy[SharableJob]):
    """Order by remaining time; a job starts when enough GPUs are empty."""

    parameters_type = SjfParameters
    needs = (SharableJob,)

    def decide(self, state: JobsState[SharableJob]) -> Placements:
        """Start waiting jobs, the shortest first."""
        jobs, cluster, placements = state.jobs, state.cluster, state.placements
        decided = dict(placements)
        shared = SharedGpus(cluster, placements, {job.name: job for job in jobs})
        waiting = [job for job in jobs if not job.running]
        for job in sorted(waiting, key=lambda job: job.remaining_s):
            gpus = self._gpus(job, shared)
            if gpus:
                decided[job.name] = JobPlacement(gpus)
                shared.add(job, gpus)
        return decided

    def partner_score(self, new: SharableJob, running: SharableJob) -> float | None:
        """Return the rank of a job to share with, the lowest first; None: never with this one."""
        return None

    def _gpus(self, job: SharableJob, shared: SharedGpus) -> tuple[int, ...]:
        """Return GPUs for a job; empty: it waits."""
        if self.parameters.consolidated:
            nodes = shared.nodes_by_fit(job.gpus)
            for node in nodes:
                gpus = self._gpus_of(job, shared, [node])
                if gpus:
                    return gpus
        else:
            nodes = shared.nodes_by_jobs()
        return self._gpus_of(job, shared, nodes)

    def _gpus_of(
        self, job: SharableJob, shared: SharedGpus, nodes: Sequence[int]
    ) -> tuple[int, ...]:
        gpus = [gpu for node in nodes for gpu in shared.free(node)]
        if len(gpus) < job.gpus:
            gpus += self._with_partners(job, shared, nodes)
        return tuple(gpus[: job.gpus]) if len(gpus) >= job.gpus else ()

    def _with_partners(
        self, job: SharableJob, shared: SharedGpus, nodes: Sequence[int]
    ) -> list[int]:
        """Return GPUs that another job holds alone, those of the best partner first."""
        candidates = [candidate for node in nodes for candidate in shared.single(node)]
        partners = {partner.name: partner for _, partner in candidates}
        scores = {
            name: score
            for name, partner in partners.items()
            if (score := self.partner_score(job, partner)) is not None
        }
        ranks = {name: rank for rank, name in enumerate(sorted(scores, key=scores.__getitem__))}
        usable = [(ranks[p.name], gpu) for gpu, p in candidates if p.name in ranks]
        return [gpu for _, gpu in sorted(usable, key=lambda item: item[0])]
