"""Placement of jobs in a given order or size: what many policies do once they have ranked them."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.free_gpus import FreeGpus
from studies.training.job import JobPlacement, TrainingJob, TrainingJobT
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy


class OrderParameters(RunParameters):
    """Form of the placement."""

    consolidated: bool = Field(default=False, description="a job is on one node, or on whole nodes")


class OrderedPolicy(TrainingPolicy[TrainingJobT]):
    """Preemptive placement in an order that subclasses define.

    Attributes:
        strict: true if no job passes one that does not fit.
    """

    parameters_type = OrderParameters
    strict: ClassVar[bool] = False

    @abstractmethod
    def order(self, jobs: Sequence[TrainingJobT]) -> list[TrainingJobT]:
        """Return the jobs, first the most urgent one."""

    def decide(self, state: JobsState[TrainingJobT]) -> Placements:
        """Order the jobs, and place those that fit."""
        ordered, consolidated = self.order(state.jobs), self.parameters.consolidated
        return place_in_order(ordered, state.cluster, strict=self.strict, consolidated=consolidated)


def fitting_jobs(
    jobs: Iterable[TrainingJobT], gpus: int, *, strict: bool = False
) -> list[TrainingJobT]:
    """Return the jobs that get their requested GPUs, in order, while there are enough.

    Args:
        jobs: jobs, the most urgent one first.
        gpus: number of GPUs.
        strict: true if no job passes one that does not fit.
    """
    fitting = []
    for job in jobs:
        if job.gpus <= gpus:
            gpus -= job.gpus
            fitting.append(job)
        elif strict:
            break
    return fitting


def place_in_order(
    jobs: Iterable[TrainingJob],
    cluster: TrainingCluster,
    *,
    strict: bool = False,
    consolidated: bool = False,
    moves: bool = False,
) -> Placements:
    """Give each job its requested GPUs while there are enough; those that run stay in place.

    Args:
        jobs: jobs, the most urgent one first.
        cluster: nodes and GPUs.
        strict: true if no job passes one that does not fit.
        consolidated: true if a job is on one node, or on whole nodes if it is larger than one.
        moves: true to place all jobs again, large ones first, where one would not fit otherwise.
    """
    fitting = fitting_jobs(jobs, cluster.gpus, strict=strict)
    decided = _placed(fitting, cluster, strict=strict, consolidated=consolidated)
    if moves and len(decided) < len(fitting):
        fitting.sort(key=lambda job: -job.gpus)
        decided = _placed(fitting, cluster, consolidated=consolidated, again=True)
    return decided


def place_counts(counts: Mapping[str, int], state: JobsState[Any]) -> Placements:
    """Place the jobs whose number of GPUs has changed, small ones first; the others stay."""
    decided = {
        name: placement
        for name, placement in state.placements.items()
        if len(placement.gpus) == counts.get(name)
    }
    free = FreeGpus(state.cluster, decided.values())
    for name, gpus in sorted(counts.items(), key=lambda item: item[1]):
        if gpus and name not in decided:
            decided[name] = JobPlacement(free.take_emptiest_first(gpus))
    return decided


def _placed(
    fitting: Sequence[TrainingJob],
    cluster: TrainingCluster,
    *,
    strict: bool = False,
    consolidated: bool,
    again: bool = False,
) -> dict[str, JobPlacement]:
    stay = [] if again else [job for job in fitting if job.running]
    decided = {job.name: job.placement for job in stay}
    free = FreeGpus(cluster, decided.values())
    for job in fitting:
        if job.name in decided:
            continue
        if consolidated:
            gpus = free.take_consolidated(job.gpus)
        else:
            gpus = free.take_emptiest_first(job.gpus)
        if gpus:
            decided[job.name] = JobPlacement(gpus)
        elif strict:
            break
    return decided
