"""Environment ``tiresias``: events, constant speeds, no cost of preemption.

The form of the public simulator of Tiresias (NSDI 2019): each job has a number of GPUs and a
duration. The cluster is 4 nodes of 4 GPUs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from studies.training.environment import WorkloadSource
from studies.training.environments.event_clock import EventEnvironment, SteadyJob
from studies.training.environments.job_rows import DurationRow, read_rows
from studies.training.job import TrainingJob

NODES, GPUS = 4, 4
_GENERATED_JOBS = 40


@dataclass(slots=True, kw_only=True, eq=False)
class ConstantJob(SteadyJob):
    """A job of known duration.

    Attributes:
        duration_s: duration at the requested GPUs.
    """

    duration_s: float

    @property
    def remaining_s(self) -> float:
        """Remaining duration."""
        return self.duration_s - self.executed_s

    def run(self, seconds: float) -> None:
        """Do nothing: the time that has passed is the progress."""


class TiresiasEnvironment(EventEnvironment[ConstantJob]):
    """Jobs of a trace with durations."""

    job_type: ClassVar[type[TrainingJob]] = ConstantJob

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a trace; see `JobEnvironment.load`."""
        rows = _generated(source.seed) if source.workload is None else read_rows(source.workload)
        jobs = [ConstantJob(**row._asdict()) for row in rows]
        return cls(parameters, jobs, source.uniform_cluster(NODES, GPUS))


def _generated(seed: int) -> list[DurationRow]:
    """Return jobs with Poisson arrivals and durations that differ by orders of magnitude."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    count = _GENERATED_JOBS
    submits_s = np.cumsum(random.exponential(60.0, count)).round().tolist()
    durations_s = np.ceil(random.lognormal(5.0, 1.2, count)).tolist()
    gpus = random.choice([1, 2, 4, 8], count, p=[0.5, 0.2, 0.2, 0.1]).tolist()
    return [
        DurationRow(f"job-{i}", submits_s[i], "generated", gpus[i], durations_s[i])
        for i in range(count)
    ]
