"""Jobs with an amount of work whose pace changes, and a clock of events: for several environments.

Decisions happen when a job arrives or ends, and when the policy asks for one. The pace of a job
follows from all placements, so it is set again before the clock goes on.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from pydantic import Field

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.environment import JobEnvironment
from workbench.jobs.environments.constant_speed import IDLE_S
from workbench.jobs.job import JobPlacement, TrainingJob
from workbench.jobs.policy import RunParameters


class PacedParameters(RunParameters):
    """Cost of a move, and generated jobs."""

    restart_s: float = Field(default=30.0, ge=0, description="without progress after a move")
    job_count: int = Field(default=60, ge=1, le=100_000, description="generated jobs")
    load_ratio: float = Field(
        default=0.8, gt=0, description="GPU-seconds of generated jobs over those of the cluster"
    )


@dataclass(slots=True, kw_only=True, eq=False)
class PacedJob(TrainingJob):
    """A job with an amount of work.

    Attributes:
        work_count: units of work in all.
        done_count: part that is done.
        unit_s: time of a unit under the current placements.
        delay_s: rest of a restart.
    """

    work_count: float
    done_count: float = 0.0
    unit_s: float = 1.0
    delay_s: float = 0.0

    @property
    def remaining_count(self) -> float:
        """Rest of the work."""
        return self.work_count - self.done_count

    def end_after_s(self, now_s: float) -> float:
        """Return the end if nothing changes."""
        return now_s + self.delay_s + self.remaining_count * self.unit_s


PacedJobT = TypeVar("PacedJobT", bound=PacedJob)


class PacedEnvironment(JobEnvironment[PacedJobT], Generic[PacedJobT]):
    """Arrivals, ends, and restarts of jobs that are moved."""

    def __init__(
        self, parameters: PacedParameters, jobs: Sequence[PacedJobT], cluster: TrainingCluster
    ) -> None:
        self.jobs = jobs
        self.cluster = cluster
        self._restart_s = parameters.restart_s
        self._arrivals_s = sorted({job.submit_s for job in jobs}, reverse=True)
        self._running: dict[str, PacedJobT] = {}

    @abstractmethod
    def set_paces(self, running: Sequence[PacedJobT]) -> None:
        """Set ``unit_s`` of the jobs that hold GPUs."""

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the time of the next arrival, end, or wish of the policy."""
        self.set_paces(tuple(self._running.values()))
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
            ran_s = min(end_s, next_s) - now_s
            if end_s <= next_s:
                job.end_s = end_s
                job.done_count = job.work_count
                del self._running[job.name]
            else:
                waited_s = min(job.delay_s, ran_s)
                job.delay_s -= waited_s
                job.done_count += (ran_s - waited_s) / job.unit_s
            job.executed_s += ran_s
            job.service_gpu_s += ran_s * len(job.placement.gpus)

    def place(self, job: PacedJobT, placement: JobPlacement, now_s: float) -> None:  # noqa: ARG002
        """Start, move or stop a job; all but its first start cost a restart."""
        if placement.gpus:
            if job.start_s is not None:
                job.restarts += 1
                job.delay_s = self._restart_s
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)
