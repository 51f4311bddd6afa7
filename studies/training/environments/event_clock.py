"""A clock of events: decisions when a job arrives or ends, and when the policy requests one."""

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from typing import TypeVar

from studies.training.environment import JobEnvironment
from studies.training.job import PredictableJob, TrainingJob

IDLE_S = 60.0  # between decisions while nothing runs and nothing arrives


class EventJob(TrainingJob):
    """A job whose end is known while nothing changes."""

    __slots__ = ()

    @abstractmethod
    def end_after_s(self, now_s: float) -> float:
        """Return the end if nothing changes."""

    @abstractmethod
    def run(self, seconds: float) -> None:
        """Make progress, up to the end if `end_s` is set; the caller counts time and service."""


class SteadyJob(EventJob, PredictableJob):
    """A job that runs at a predictable speed while it is placed."""

    __slots__ = ()

    def end_after_s(self, now_s: float) -> float:
        """Return the end of the remaining time."""
        return now_s + self.remaining_s


EventJobT = TypeVar("EventJobT", bound=EventJob)


class EventEnvironment(JobEnvironment[EventJobT]):
    """Arrivals and ends as events."""

    def set_paces(self, running: Sequence[EventJobT]) -> None:
        """Set the speeds of the jobs that hold GPUs, before the clock goes on."""

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the time of the next arrival, end, or wish of the policy."""
        self.set_paces(tuple(self._running.values()))
        ends_s = (job.end_after_s(now_s) for job in self._running.values())
        next_s = min(self._next_arrival_s(), min(ends_s, default=inf), wake_s)
        return next_s if next_s < inf else now_s + IDLE_S

    def advance(self, now_s: float, next_s: float) -> None:
        """Let placed jobs run until the next event."""
        self._drop_arrivals(next_s)
        for job in list(self._running.values()):
            end_s = job.end_after_s(now_s)
            if end_s <= next_s:
                job.end_s = end_s
                del self._running[job.name]
            ran_s = min(end_s, next_s) - now_s
            job.run(ran_s)
            job.executed_s += ran_s
            job.service_gpu_s += ran_s * len(job.placement.gpus)
