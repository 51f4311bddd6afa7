"""The queue of one stage of one workflow (the ESG paper's AFW queue), oldest request first."""

from collections import deque
from typing import Generic, Protocol, TypeVar


class Due(Protocol):
    """A job: one request at one stage."""

    deadline_ms: float


JobT = TypeVar("JobT", bound=Due)


class JobQueue(Generic[JobT]):
    """Jobs by their requests' deadlines, which in one workflow are in the order of arrival.

    Attributes:
        jobs: those that wait; to be read alone.
    """

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs: deque[JobT] = deque()

    def add(self, job: JobT) -> None:
        """A job joins; behind those that are due as soon as it, before those that are due later."""
        jobs = self.jobs
        if not jobs or jobs[-1].deadline_ms <= job.deadline_ms:
            jobs.append(job)
            return
        # Out of order only where an earlier stage was not: a few places from the end.
        at = len(jobs) - 1
        while at > 0 and jobs[at - 1].deadline_ms > job.deadline_ms:
            at -= 1
        jobs.insert(at, job)

    def take(self, batch: int) -> list[JobT]:
        """The oldest jobs leave to run together: ``batch`` of them, or all where fewer wait."""
        jobs = self.jobs
        if batch == 1:
            return [jobs.popleft()]
        return [jobs.popleft() for _ in range(min(batch, len(jobs)))]

    @property
    def deadline_ms(self) -> float:
        """Of the oldest job, whose deadline is that of any batch it is in; there must be one."""
        return self.jobs[0].deadline_ms
