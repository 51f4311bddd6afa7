"""Jobs of a request at the stages of its workflow."""

from typing import Generic, Protocol, TypeVar


class Arrived(Protocol):
    """A request."""

    arrival_ms: float


RequestT = TypeVar("RequestT", bound=Arrived)


class StageJob(Generic[RequestT]):
    """A request at one stage, with the phases of the longest chain of stages before it.

    Attributes:
        since_ms: time at which the job joined its queue.
    """

    __slots__ = (
        "deadline_ms",
        "execute_ms",
        "queue_ms",
        "request",
        "since_ms",
        "start_ms",
        "transfer_ms",
    )

    def __init__(self, request: RequestT, deadline_ms: float) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.since_ms = request.arrival_ms
        self.queue_ms = 0.0
        self.start_ms = 0.0
        self.transfer_ms = 0.0
        self.execute_ms = 0.0

    def branches(self, count: int, now_ms: float) -> "list[StageJob[RequestT]]":
        """Return this job and copies of it, one for each stage that begins now."""
        self.since_ms = now_ms
        return [self, *(self._copy() for _ in range(count - 1))]

    def _copy(self) -> "StageJob[RequestT]":
        branch = StageJob(self.request, self.deadline_ms)
        branch.since_ms = self.since_ms
        branch.queue_ms = self.queue_ms
        branch.start_ms = self.start_ms
        branch.transfer_ms = self.transfer_ms
        branch.execute_ms = self.execute_ms
        return branch
