"""Ends of calls and batches: the last ones in memory, and at level debug a line of the log each.

`esg calibrate` reads both.
"""

import logging
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import structlog

from scheduler.dispatch.pods import Share
from scheduler.dispatch.requests import Request, WorkflowKey
from scheduler.gateway.serving.recorder import BatchEnded, CallResult

log = structlog.get_logger(__name__)
CALLS_MAX: Final = 10_000  # about 170 bytes each, and as much for a batch
CALL_ENDED: Final = "call ended"
BATCH_ENDED: Final = "batch ended"


class EndedCall(NamedTuple):
    """A call of a whole workflow."""

    ended_ms: float
    workflow: WorkflowKey
    result: CallResult
    latency_s: float
    allowed_s: float

    def fields(self) -> dict[str, Any]:
        """Return the fields of its line."""
        namespace, workflow = self.workflow
        return {
            "namespace": namespace,
            "workflow": workflow,
            "result": self.result,
            "latency_s": self.latency_s,
            "allowed_s": self.allowed_s,
        }


class EndedBatch(NamedTuple):
    """A batch that a model server has answered; see `BatchEnded`."""

    ended_ms: float
    workflow: WorkflowKey
    stage: str
    rows: int
    share: Share
    execute_s: float
    profiled_s: float

    def fields(self) -> dict[str, Any]:
        """Return the fields of its line."""
        namespace, workflow = self.workflow
        return {
            "namespace": namespace,
            "workflow": workflow,
            "stage": self.stage,
            "rows": self.rows,
            "execute_s": self.execute_s,
            "profiled_s": self.profiled_s,
            **self.share._asdict(),
        }


class CallLog:
    """The last calls and batches.

    Args:
        calls_max: number of calls, and number of batches, that are kept.
    """

    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._calls: deque[EndedCall] = deque(maxlen=calls_max)
        self._batches: deque[EndedBatch] = deque(maxlen=calls_max)
        self._is_logged = log.is_enabled_for(logging.DEBUG)

    def call_ended(self, request: Request, result: CallResult, ended_ms: float) -> None:
        """Note the end of a call; one of a single stage is left out."""
        if request.only is not None:
            return
        latency_s = (ended_ms - request.arrival_ms) / 1000
        allowed_s = (request.deadline_ms - request.arrival_ms) / 1000
        call = EndedCall(ended_ms, request.workflow, result, latency_s, allowed_s)
        self._calls.append(call)
        if self._is_logged:
            log.debug(CALL_ENDED, **call.fields())

    def batch_ended(self, ended: BatchEnded, ended_ms: float) -> None:
        """Note the end of a batch."""
        batch = EndedBatch(
            ended_ms,
            ended.workflow,
            ended.stage,
            ended.rows,
            ended.share,
            ended.execute_s,
            ended.profiled_s,
        )
        self._batches.append(batch)
        if self._is_logged:
            log.debug(BATCH_ENDED, **batch.fields())

    def lines(self, unix_offset_ms: float) -> Iterator[dict[str, Any]]:
        """Iterate over the lines of a window of time from which no call or batch is missing.

        Args:
            unix_offset_ms: Unix time at zero of the clock, ms.
        """
        full = [ends for ends in (self._calls, self._batches) if len(ends) == ends.maxlen]
        begin_ms = max((ends[0].ended_ms for ends in full if ends), default=0.0)
        for event, ends in ((CALL_ENDED, tuple(self._calls)), (BATCH_ENDED, tuple(self._batches))):
            for ended in ends:
                if ended.ended_ms >= begin_ms:
                    at = datetime.fromtimestamp((unix_offset_ms + ended.ended_ms) / 1000, UTC)
                    yield {"event": event, "timestamp": at.isoformat(), **ended.fields()}
