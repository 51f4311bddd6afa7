"""Requests at a dispatcher, and their rows at a stage."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from scheduler.dispatch.stage_graph import StageGraph, StageWalk
from scheduler.model.progress import InstanceProgress

WorkflowKey = tuple[str, str]  # namespace, name


class Part(Protocol):
    """Rows with which a request enters a stage; the owner's own type.

    A request with more rows than any batch has enters a stage in several parts.
    """

    @property
    def rows(self) -> int:
        """Number of rows, at least 1."""

    @property
    def joinable(self) -> Hashable:
        """Only parts with equal values share a batch."""


class PlainPart(NamedTuple):
    """Rows without data; ``payload`` is of the owner."""

    rows: int = 1
    joinable: Hashable = None
    payload: Any = None


class Request(StageWalk):
    """One request of a workflow, or of one of its stages.

    Attributes:
        workflow: key of the workflow.
        payload: owner's object.
        arrival_ms, deadline_ms: times on the owner's clock.
        only: index of the only stage that is run; None: all stages.
        ended: true if it was answered, dropped or cancelled.
        waiting: jobs in queues.
        parts_left: number of parts that have not ended, by stage that has begun.
        ends_ms: predicted ends of stages that run.
        recorded: true if it counts in the hit rate of its workflow.
    """

    __slots__ = (
        "arrival_ms",
        "deadline_ms",
        "ended",
        "ends_ms",
        "only",
        "parts_left",
        "payload",
        "recorded",
        "waiting",
        "workflow",
    )

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        workflow: WorkflowKey,
        graph: StageGraph,
        payload: Any,
        *,
        arrival_ms: float,
        deadline_ms: float,
        only: int | None = None,
    ) -> None:
        super().__init__(graph)
        self.workflow = workflow
        self.payload = payload
        self.arrival_ms = arrival_ms
        self.deadline_ms = deadline_ms
        self.only = only
        self.ended = self.recorded = False
        self.waiting: dict[Job, None] = {}
        self.parts_left: dict[int, int] = {}
        self.ends_ms: dict[int, float] = {}

    @property
    def arrived_in_time(self) -> bool:
        """True if it arrived before its deadline."""
        return self.arrival_ms < self.deadline_ms

    def part_ended(self, stage: int) -> bool:
        """End one part at a stage; return true if it was the last one."""
        self.parts_left[stage] -= 1
        return not self.parts_left[stage]

    def progress(self, names: Sequence[str], now_ms: float) -> InstanceProgress:
        """Return the stages that have ended, and when those that run end by prediction."""
        parts_left = self.parts_left
        return InstanceProgress(
            frozenset(names[stage] for stage, parts in parts_left.items() if not parts),
            {
                names[stage]: max(end_ms - now_ms, 0.0)
                for stage, end_ms in self.ends_ms.items()
                if parts_left.get(stage)
            },
        )


class Job:
    """One part of a request at one stage.

    Attributes:
        part: part of the request, from the owner; ``rows`` and ``joinable`` are those of it.
        deadline_ms: deadline of its request.
        since_ms: time at which it joined its queue.
        attempts: runs that failed.
        avoided: pods on which they failed.
        late: true if it cannot be in time any more.
        node: node of the run before it; empty at the first stage.
        queue_ms, start_ms, execute_ms: phases of the longest chain of stages up to now;
            ``start_ms`` is the time that it waited for its pod to start.
    """

    __slots__ = (
        "attempts",
        "avoided",
        "deadline_ms",
        "execute_ms",
        "joinable",
        "late",
        "node",
        "part",
        "queue_ms",
        "request",
        "rows",
        "since_ms",
        "stage",
        "start_ms",
    )

    def __init__(self, request: Request, stage: int, part: Part, since_ms: float) -> None:
        self.request = request
        self.stage = stage
        self.part: Any = part
        self.rows = part.rows
        self.joinable = part.joinable
        self.deadline_ms = request.deadline_ms
        self.since_ms = since_ms
        self.attempts = 0
        self.avoided: frozenset[str] = frozenset()
        self.late = False
        self.node = ""
        self.queue_ms = 0.0
        self.start_ms = 0.0
        self.execute_ms = 0.0

    def follows(self, previous: "Job", node: str) -> None:
        """Continue the phases of the job that ended last before this stage."""
        self.node = node
        self.queue_ms = previous.queue_ms
        self.start_ms = previous.start_ms
        self.execute_ms = previous.execute_ms
