"""Environment ``sharing``: two jobs may share a GPU, and slow one another down.

Decisions happen when a job arrives or ends. Slow-downs are Gavel's measured pairs on one V100. With
several neighbours a job has the speed that the worst one leaves, because its GPUs work in step. The
cluster is 4 nodes of 4 GPUs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.environment import JobEnvironment
from workbench.jobs.environments.constant_speed import IDLE_S
from workbench.jobs.environments.job_rows import DurationRow, generated_rows, read_rows
from workbench.jobs.environments.sharing_slowdowns import (
    Slowdowns,
    generated_slowdowns,
    read_slowdowns,
)
from workbench.jobs.job import JobPlacement, SharableJob, TrainingJob
from workbench.jobs.policy import RunParameters
from workbench.jobs.shared_gpus import JOBS_PER_GPU

NODES, GPUS = 4, 4


class SharingParameters(RunParameters):
    """Cost of preemption, and generated jobs."""

    restart_s: float = Field(default=30.0, ge=0, description="without progress after a preemption")
    job_count: int = Field(default=60, ge=1, le=100_000, description="generated jobs")
    load_ratio: float = Field(
        default=0.8, gt=0, description="GPU-seconds of generated jobs over those of the cluster"
    )


@dataclass(slots=True, kw_only=True, eq=False)
class SharingJob(SharableJob):
    """A job of known duration, at the speed that its neighbours leave.

    Attributes:
        duration_s: alone, at the requested GPUs.
        slowdowns: of its model beside others.
        progress_s: part of the duration that is done.
        delay_s: rest of a restart.
        slowed_ratio: slow-down now.
    """

    duration_s: float
    slowdowns: Slowdowns
    progress_s: float = 0.0
    delay_s: float = 0.0
    slowed_ratio: float = 1.0

    @property
    def remaining_s(self) -> float:
        """Rest of the duration, alone."""
        return self.duration_s - self.progress_s

    def slowdown_ratio(self, neighbour: SharableJob) -> float:
        """Return the slow-down beside a neighbour's model."""
        return self.slowdowns[self.model, neighbour.model]

    def end_after_s(self, now_s: float) -> float:
        """Return the end if nothing changes."""
        return now_s + self.delay_s + self.remaining_s * self.slowed_ratio


class SharingEnvironment(JobEnvironment[SharingJob]):
    """Jobs of a trace with durations, two on a GPU at most."""

    job_type: ClassVar[type[TrainingJob]] = SharingJob
    parameters_type: ClassVar[type[RunParameters]] = SharingParameters
    workload_help: ClassVar[str] = "CSV: job_id, num_gpu, submit_time, model_name, duration"
    jobs_per_gpu: ClassVar[int] = JOBS_PER_GPU

    def __init__(
        self, parameters: SharingParameters, jobs: Sequence[SharingJob], cluster: TrainingCluster
    ) -> None:
        self.jobs = jobs
        self.cluster = cluster
        self._restart_s = parameters.restart_s
        self._arrivals_s = sorted({job.submit_s for job in jobs}, reverse=True)
        self._running: dict[str, SharingJob] = {}

    @classmethod
    def load(  # noqa: PLR0913 - the setup of a run
        cls,
        parameters: Any,
        *,
        workload: Path | None,
        data: Path | None,
        nodes: int | None,
        gpus: int | None,
        seed: int,
    ) -> Self:
        """Read a trace and the slow-downs of its models; see `JobEnvironment.load`."""
        cluster = TrainingCluster.uniform(nodes or NODES, gpus or GPUS)
        slowdowns = generated_slowdowns() if data is None else read_slowdowns(data)
        models = sorted({model for model, _ in slowdowns})
        if workload is None:
            rows = generated_rows(
                seed,
                models=models,
                jobs=parameters.job_count,
                gpus=cluster.gpus,
                load_ratio=parameters.load_ratio,
            )
        else:
            rows = read_rows(workload, models)
        return cls(parameters, [_job(row, slowdowns) for row in rows], cluster)

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the time of the next arrival, end, or wish of the policy."""
        self._update_slowdowns()
        arrival_s = self._arrivals_s[-1] if self._arrivals_s else inf
        ends_s = (job.end_after_s(now_s) for job in self._running.values())
        next_s = min(arrival_s, min(ends_s, default=inf), wake_s)
        return next_s if next_s < inf else now_s + IDLE_S

    def advance(self, now_s: float, next_s: float) -> None:
        """Let placed jobs run until the next event."""
        while self._arrivals_s and self._arrivals_s[-1] <= next_s:
            self._arrivals_s.pop()
        for job in list(self._running.values()):
            end_s = job.end_after_s(now_s)
            if end_s <= next_s:
                job.end_s = end_s
                job.progress_s = job.duration_s
                del self._running[job.name]
            ran_s = min(end_s, next_s) - now_s
            waited_s = min(job.delay_s, ran_s)
            job.delay_s -= waited_s
            if job.end_s is None:
                job.progress_s += (ran_s - waited_s) / job.slowed_ratio
            job.executed_s += ran_s
            job.service_gpu_s += ran_s * len(job.placement.gpus)

    def place(self, job: SharingJob, placement: JobPlacement, now_s: float) -> None:  # noqa: ARG002
        """Start, move or stop a job; all but its first start cost a restart."""
        if placement.gpus:
            if job.start_s is not None:
                job.restarts += 1
                job.delay_s = self._restart_s
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)

    def _update_slowdowns(self) -> None:
        holders: dict[int, list[SharingJob]] = defaultdict(list)
        for job in self._running.values():
            job.slowed_ratio = 1.0
            for gpu in job.placement.gpus:
                holders[gpu].append(job)
        for sharing in holders.values():
            if len(sharing) > 1:
                first, second = sharing
                first.slowed_ratio = max(first.slowed_ratio, first.slowdown_ratio(second))
                second.slowed_ratio = max(second.slowed_ratio, second.slowdown_ratio(first))


def _job(row: DurationRow, slowdowns: Slowdowns) -> SharingJob:
    return SharingJob(
        name=row.name,
        model=row.model,
        submit_s=row.submit_s,
        gpus=row.gpus,
        duration_s=row.duration_s,
        slowdowns=slowdowns,
    )
