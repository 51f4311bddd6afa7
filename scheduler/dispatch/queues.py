"""The queue of one stage of one workflow (the ESG paper's AFW queue), oldest request first."""

from collections import deque
from typing import Generic, Protocol, TypeVar


class Due(Protocol):
    """A job: one request at one stage."""

    deadline_ms: float


JobT = TypeVar("JobT", bound=Due)


class JobQueue(Generic[JobT]):
    """Jobs ordered by their requests' deadlines, which within one workflow is arrival order.

    Attributes:
        jobs: the waiting jobs; read only.
    """

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs: deque[JobT] = deque()

    def add(self, job: JobT) -> None:
        """Insert a job behind those due earlier or at the same time."""
        jobs = self.jobs
        if not jobs or jobs[-1].deadline_ms <= job.deadline_ms:
            jobs.append(job)
            return
        # Out of order only if an earlier stage was: a few places from the end.
        index = len(jobs) - 1
        while index > 0 and jobs[index - 1].deadline_ms > job.deadline_ms:
            index -= 1
        jobs.insert(index, job)

    def take(self, batch: int) -> list[JobT]:
        """Remove the oldest jobs for one run: ``batch`` of them, or all if fewer wait."""
        jobs = self.jobs
        if batch == 1:
            return [jobs.popleft()]
        return [jobs.popleft() for _ in range(min(batch, len(jobs)))]

    @property
    def deadline_ms(self) -> float:
        """Deadline of the oldest job, and of any batch with it; there must be one."""
        return self.jobs[0].deadline_ms
