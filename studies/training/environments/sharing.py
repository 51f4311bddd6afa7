"""Environment ``sharing``: two jobs may share a GPU, and slow one another down.

Decisions happen when a job arrives or ends. Slow-downs are Gavel's measured pairs on one V100. With
several neighbours a job has the speed that the worst one leaves, because its GPUs work in step. The
cluster is 4 nodes of 4 GPUs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import Field

from studies.training.environment import WorkloadSource
from studies.training.environments.job_rows import DurationRow, generated_rows, read_rows
from studies.training.environments.paced import PacedEnvironment, PacedJob, PacedParameters
from studies.training.environments.sharing_slowdowns import (
    Slowdowns,
    generated_slowdowns,
    read_slowdowns,
)
from studies.training.job import SharableJob, TrainingJob
from studies.training.policy import RunParameters
from studies.training.shared_gpus import JOBS_PER_GPU

NODES, GPUS = 4, 4


class SharingParameters(PacedParameters):
    """Limit of the division of batches."""

    accumulation_max: int = Field(
        default=1, ge=1, le=64, description="largest number of parts of a batch on a shared GPU"
    )


@dataclass(slots=True, kw_only=True, eq=False)
class SharingJob(PacedJob, SharableJob):
    """A job of known duration, at the pace that its neighbours leave.

    Attributes:
        slowdowns: slow-downs of the job's model with others.
    """

    slowdowns: Slowdowns

    @property
    def remaining_s(self) -> float:
        """Remaining duration, alone."""
        return self.remaining_count

    def slowdown_ratio(self, neighbour: SharableJob) -> float:
        """Return the slow-down by a neighbour's model."""
        return self.slowdowns[self.model, neighbour.model]


class SharingEnvironment(PacedEnvironment[SharingJob]):
    """Jobs of a trace with durations, two on a GPU at most."""

    job_type: ClassVar[type[TrainingJob]] = SharingJob
    parameters_type: ClassVar[type[RunParameters]] = SharingParameters
    jobs_per_gpu: ClassVar[int] = JOBS_PER_GPU

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a trace and the slow-downs of its models; see `JobEnvironment.load`."""
        cluster = source.uniform_cluster(NODES, GPUS)
        parts_max = parameters.accumulation_max
        if source.data is None:
            slowdowns = generated_slowdowns(parts_max)
        else:
            slowdowns = read_slowdowns(source.data, parts_max)
        models = sorted({model for model, _ in slowdowns})
        if source.workload is None:
            rows = generated_rows(
                source.seed,
                models=models,
                jobs=parameters.job_count,
                gpus=cluster.gpus,
                load_ratio=parameters.load_ratio,
            )
        else:
            rows = read_rows(source.workload, models)
        return cls(parameters, [_job(row, slowdowns) for row in rows], cluster)

    def set_paces(self, running: Sequence[SharingJob]) -> None:
        """Slow down the jobs that share a GPU."""
        holders: dict[int, list[SharingJob]] = defaultdict(list)
        for job in running:
            job.unit_s = 1.0
            for gpu in job.placement.gpus:
                holders[gpu].append(job)
        for sharing in holders.values():
            if len(sharing) > 1:
                first, second = sharing
                first.unit_s = max(first.unit_s, first.slowdown_ratio(second))
                second.unit_s = max(second.unit_s, second.slowdown_ratio(first))


def _job(row: DurationRow, slowdowns: Slowdowns) -> SharingJob:
    return SharingJob(
        name=row.name,
        model=row.model,
        submit_s=row.submit_s,
        gpus=row.gpus,
        work_count=row.duration_s,
        slowdowns=slowdowns,
    )
