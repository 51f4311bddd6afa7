"""Reports of the runtime about calls and batches, for metrics."""

from typing import Literal, NamedTuple, Protocol

from scheduler.dispatch.pods import Share
from scheduler.dispatch.requests import WorkflowKey

CallResult = Literal["hit", "miss", "dropped"]


class BatchEnded(NamedTuple):
    """A batch that a model server has answered.

    Attributes:
        workflow, stage: workflow and stage of the batch's rows.
        rows: number of rows.
        single_stage_rows: number of those that are of calls of this stage alone.
        share: resources of the pod.
        queue_s: time in the queue of each call in the batch.
        execute_s: time from the request to the model server to its answer.
        profiled_s: time of the batch according to its profile.
    """

    workflow: WorkflowKey
    stage: str
    rows: int
    single_stage_rows: int
    share: Share
    queue_s: tuple[float, ...]
    execute_s: float
    profiled_s: float


class CallRecorder(Protocol):
    """Receiver of reports."""

    def call_ended(
        self,
        workflow: WorkflowKey,
        result: CallResult,
        duration_s: float | None,
        *,
        cold_start: bool = False,
    ) -> None:
        """Count a call of a whole workflow: in time, late, or without an answer (None)."""

    def late_call_traced(
        self, workflow: WorkflowKey, duration_s: float, *, request_id: str, trace_id: str
    ) -> None:
        """Receive identifiers of a late call of a whole workflow; ``trace_id`` may be empty."""

    def call_refused(self, workflow: WorkflowKey, status: int) -> None:
        """Count a call that was refused: any workflow may be named, and the call may be invalid."""

    def batch_ended(self, batch: BatchEnded) -> None:
        """Count a batch."""
