"""Ends of calls and batches: the last ones in memory, and at level debug a line of the log each.

`esg calibrate` reads both.
"""

import logging
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from scheduler.dispatch.requests import Request
from scheduler.gateway.serving.recorder import BatchEnded, CallResult

log = structlog.get_logger(__name__)
CALLS_MAX: Final = 10_000  # about 170 bytes each, and 220 for a batch
CALL_ENDED: Final = "call ended"
BATCH_ENDED: Final = "batch ended"
_BATCH_FIELDS: Final = (
    "namespace", "workflow", "stage", "rows", "execute_s", "profiled_s", "gpu_model", "cpu",
    "gpu_percent",
)  # fmt: skip


# Tuples of numbers and texts alone: on the path of each request, and the garbage collector leaves
# them out once it has seen them.
Call = tuple[float, str, str, CallResult, float, float, bool]
"""End, namespace, workflow, result, arrival, deadline, and true if it waited for the start of a
pod; times in ms."""
Batch = tuple[float, str, str, str, int, float, float, str, int, int]
"""End in ms, then the values of `_BATCH_FIELDS`."""


class CallLog:
    """The last calls and batches.

    Args:
        calls_max: number of calls, and number of batches, that are kept.
    """

    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._calls: deque[Call] = deque(maxlen=calls_max)
        self._batches: deque[Batch] = deque(maxlen=calls_max)
        self._is_logged = log.is_enabled_for(logging.DEBUG)

    def call_ended(
        self, request: Request, result: CallResult, ended_ms: float, *, cold_start: bool
    ) -> None:
        """Note the end of a call; one of a single stage is left out."""
        if request.only is None:
            arrival_ms, deadline_ms = request.arrival_ms, request.deadline_ms
            call = (ended_ms, *request.workflow, result, arrival_ms, deadline_ms, cold_start)
            self._calls.append(call)
            if self._is_logged:
                log.debug(CALL_ENDED, **_fields_of_call(call))

    def batch_ended(self, ended: BatchEnded, ended_ms: float) -> None:
        """Note the end of a batch."""
        key, stage, rows, share, _, execute_s, profiled_s = ended
        gpu_model, cpu, gpu_percent, _ = share
        batch = (
            ended_ms, *key, stage, rows, execute_s, profiled_s, gpu_model, cpu, gpu_percent,
        )  # fmt: skip
        self._batches.append(batch)
        if self._is_logged:
            log.debug(BATCH_ENDED, **_fields_of_batch(batch))

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
        for batch in batches:
            if batch[0] >= begin_ms:
                yield line(BATCH_ENDED, batch[0], _fields_of_batch(batch))


def _fields_of_call(call: Call) -> dict[str, Any]:
    ended_ms, namespace, workflow, result, arrival_ms, deadline_ms, cold_start = call
    return {
        "namespace": namespace,
        "workflow": workflow,
        "result": result,
        "latency_s": (ended_ms - arrival_ms) / 1000,
        "allowed_s": (deadline_ms - arrival_ms) / 1000,
        "cold_start": cold_start,
    }


def _fields_of_batch(batch: Batch) -> dict[str, Any]:
    return dict(zip(_BATCH_FIELDS, batch[1:], strict=True))
