"""Jobs of constant speed and a clock of events: what several environments share.

A job runs for its duration at the GPUs that it requests. Decisions happen when a job arrives or
ends, and when the policy asks for one.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.environment import JobEnvironment
from workbench.jobs.job import JobPlacement, PredictableJob

IDLE_S = 60.0  # between decisions while nothing runs and nothing arrives


class SteadyJob(PredictableJob):
    """A job that runs at a predictable speed while it is placed."""

    __slots__ = ()

    @abstractmethod
    def run(self, seconds: float) -> None:
        """Make progress; the caller counts time and service."""


SteadyJobT = TypeVar("SteadyJobT", bound=SteadyJob)


@dataclass(slots=True, kw_only=True, eq=False)
class ConstantJob(SteadyJob):
    """A job of known duration.

    Attributes:
        duration_s: at the requested GPUs.
    """

    duration_s: float

    @property
    def remaining_s(self) -> float:
        """Rest of the duration."""
        return self.duration_s - self.executed_s

    def run(self, seconds: float) -> None:
        """Do nothing: the time that has passed is the progress."""


class EventEnvironment(JobEnvironment[SteadyJobT]):
    """Arrivals and ends as events; a change of GPUs costs nothing."""

    def __init__(self, jobs: Sequence[SteadyJobT], cluster: TrainingCluster) -> None:
        self.jobs = jobs
        self.cluster = cluster
        self._arrivals_s = sorted({job.submit_s for job in jobs}, reverse=True)
        self._running: dict[str, SteadyJobT] = {}

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the time of the next arrival, end, or wish of the policy."""
        arrival_s = self._arrivals_s[-1] if self._arrivals_s else inf
        ends_s = (now_s + job.remaining_s for job in self._running.values())
        next_s = min(arrival_s, min(ends_s, default=inf), wake_s)
        return next_s if next_s < inf else now_s + IDLE_S

    def advance(self, now_s: float, next_s: float) -> None:
        """Let placed jobs run until the next event."""
        while self._arrivals_s and self._arrivals_s[-1] <= next_s:
            self._arrivals_s.pop()
        for job in list(self._running.values()):
            end_s = now_s + job.remaining_s
            if end_s <= next_s:
                job.end_s = end_s
                del self._running[job.name]
            ran_s = min(end_s, next_s) - now_s
            job.run(ran_s)
            job.executed_s += ran_s
            job.service_gpu_s += ran_s * len(job.placement.gpus)

    def place(self, job: SteadyJobT, placement: JobPlacement, now_s: float) -> None:  # noqa: ARG002
        """Start a job, move it at no cost, or stop it."""
        if placement.gpus:
            job.restarts += job.start_s is not None and not job.running
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)
