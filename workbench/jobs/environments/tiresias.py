"""Environment ``tiresias``: events, constant speeds, no cost of preemption.

The form of the public simulator of Tiresias (NSDI 2019): each job has a number of GPUs and a
duration. The cluster is 4 nodes of 4 GPUs.
"""

from typing import Any, ClassVar, Self

import numpy as np

from workbench.jobs.environment import WorkloadSource
from workbench.jobs.environments.constant_speed import ConstantJob, EventEnvironment
from workbench.jobs.environments.job_rows import DurationRow, read_rows
from workbench.jobs.job import TrainingJob

NODES, GPUS = 4, 4
_GENERATED_JOBS = 40


class TiresiasEnvironment(EventEnvironment[ConstantJob]):
    """Jobs of a trace with durations."""

    job_type: ClassVar[type[TrainingJob]] = ConstantJob

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:  # noqa: ARG003
        """Read a trace; see `JobEnvironment.load`."""
        jobs = (
            _generated(source.seed)
            if source.workload is None
            else [_job(row) for row in read_rows(source.workload)]
        )
        return cls(jobs, source.uniform_cluster(NODES, GPUS))


def _job(row: DurationRow) -> ConstantJob:
    return ConstantJob(
        name=row.name,
        model=row.model,
        submit_s=row.submit_s,
        gpus=row.gpus,
        duration_s=row.duration_s,
    )


def _generated(seed: int) -> list[ConstantJob]:
    """Return jobs with Poisson arrivals and durations that differ by orders of magnitude."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    submits_s = np.cumsum(random.exponential(60.0, _GENERATED_JOBS)).round()
    durations_s = np.ceil(random.lognormal(5.0, 1.2, _GENERATED_JOBS))
    gpus = random.choice([1, 2, 4, 8], _GENERATED_JOBS, p=[0.5, 0.2, 0.2, 0.1])
    return [
        ConstantJob(
            name=f"job-{number}",
            model="generated",
            submit_s=float(submits_s[number]),
            gpus=int(gpus[number]),
            duration_s=float(durations_s[number]),
        )
        for number in range(_GENERATED_JOBS)
    ]
