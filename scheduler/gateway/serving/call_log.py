"""Ends of calls and batches: the last ones in memory, and at level debug a line of the log each.

`esg calibrate` reads both.
"""

import logging
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from scheduler.dispatch.requests import Request, WorkflowKey
from scheduler.gateway.serving.recorder import BatchEnded, CallResult

log = structlog.get_logger(__name__)
CALLS_MAX: Final = 10_000  # about 150 bytes each; a batch has 250, and 32 for each call in it
CALL_ENDED: Final = "call ended"
BATCH_ENDED: Final = "batch ended"


Call = tuple[float, WorkflowKey, CallResult, float, float]
"""End, workflow, result, arrival and deadline; times in ms."""


class CallLog:
    """The last calls and batches.

    Args:
        calls_max: number of calls, and number of batches, that are kept.
    """

    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        # Plain tuples: on the path of each request.
        self._calls: deque[Call] = deque(maxlen=calls_max)
        self._batches: deque[tuple[float, BatchEnded]] = deque(maxlen=calls_max)
        self._is_logged = log.is_enabled_for(logging.DEBUG)

    def call_ended(self, request: Request, result: CallResult, ended_ms: float) -> None:
        """Note the end of a call; one of a single stage is left out."""
        if request.only is None:
            call = (ended_ms, request.workflow, result, request.arrival_ms, request.deadline_ms)
            self._calls.append(call)
            if self._is_logged:
                log.debug(CALL_ENDED, **_fields_of_call(call))

    def batch_ended(self, ended: BatchEnded, ended_ms: float) -> None:
        """Note the end of a batch."""
        self._batches.append((ended_ms, ended))
        if self._is_logged:
            log.debug(BATCH_ENDED, **_fields_of_batch(ended))

    def lines(self, unix_offset_ms: float) -> Iterator[dict[str, Any]]:
        """Iterate over the lines of a window of time from which no call or batch is missing.

        Args:
            unix_offset_ms: Unix time at zero of the clock, ms.
        """
        calls, batches = tuple(self._calls), tuple(self._batches)
        full = [ends for ends in (calls, batches) if ends and len(ends) == self._calls.maxlen]
        begin_ms = max((ends[0][0] for ends in full), default=0.0)

        def line(event: str, ended_ms: float, fields: dict[str, Any]) -> dict[str, Any]:
            at = datetime.fromtimestamp((unix_offset_ms + ended_ms) / 1000, UTC)
            return {"event": event, "timestamp": at.isoformat(), **fields}

        for call in calls:
            if call[0] >= begin_ms:
                yield line(CALL_ENDED, call[0], _fields_of_call(call))
        for ended_ms, ended in batches:
            if ended_ms >= begin_ms:
                yield line(BATCH_ENDED, ended_ms, _fields_of_batch(ended))


def _fields_of_call(call: Call) -> dict[str, Any]:
    ended_ms, (namespace, workflow), result, arrival_ms, deadline_ms = call
    return {
        "namespace": namespace,
        "workflow": workflow,
        "result": result,
        "latency_s": (ended_ms - arrival_ms) / 1000,
        "allowed_s": (deadline_ms - arrival_ms) / 1000,
    }


def _fields_of_batch(ended: BatchEnded) -> dict[str, Any]:
    namespace, workflow = ended.workflow
    return {
        "namespace": namespace,
        "workflow": workflow,
        "stage": ended.stage,
        "rows": ended.rows,
        "execute_s": ended.execute_s,
        "profiled_s": ended.profiled_s,
        **ended.share._asdict(),
    }
