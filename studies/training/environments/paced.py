"""Jobs with an amount of work whose pace changes: what several environments share.

The pace of a job follows from all placements, so it is set again before the clock goes on.
"""

from dataclasses import dataclass
from typing import TypeVar

from pydantic import Field

from studies.training.environments.event_clock import EventEnvironment, EventJob
from studies.training.job import JobPlacement
from studies.training.policy import RunParameters


class PacedParameters(RunParameters):
    """Cost of a move, and generated jobs."""

    restart_s: float = Field(default=30.0, ge=0, description="without progress after a move")
    job_count: int = Field(default=60, ge=1, le=100_000, description="generated jobs")
    load_ratio: float = Field(
        default=0.8, gt=0, description="GPU-seconds of generated jobs over those of the cluster"
    )


@dataclass(slots=True, kw_only=True, eq=False)
class PacedJob(EventJob):
    """A job with an amount of work.

    Attributes:
        work_count: total number of units of work.
        done_count: number of units that are done.
        unit_s: time of a unit under the current placements.
        delay_s: remaining time of a restart.
    """

    work_count: float
    done_count: float = 0.0
    unit_s: float = 1.0
    delay_s: float = 0.0

    @property
    def remaining_count(self) -> float:
        """Remaining work."""
        return self.work_count - self.done_count

    def end_after_s(self, now_s: float) -> float:
        """Return the end if nothing changes."""
        return now_s + self.delay_s + self.remaining_count * self.unit_s

    def run(self, seconds: float) -> None:
        """Restart, then work."""
        waited_s = min(self.delay_s, seconds)
        self.delay_s -= waited_s
        self.done_count += (seconds - waited_s) / self.unit_s
        if self.end_s is not None:
            self.done_count = self.work_count


PacedJobT = TypeVar("PacedJobT", bound=PacedJob)


class PacedEnvironment(EventEnvironment[PacedJobT]):
    """Restarts of jobs that are moved."""

    def place(self, job: PacedJobT, placement: JobPlacement, now_s: float) -> None:
        """Start, move or stop a job; all but its first start cost a restart."""
        if placement.gpus:
            if job.start_s is not None:
                job.restarts += 1
                job.delay_s = self.parameters.restart_s
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)
