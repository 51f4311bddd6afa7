"""Ends of calls and batches: the last ones in memory, and at level debug a line of the log each.

`esg calibrate` reads both.
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from struct import Struct
from typing import Any, Final

import structlog

from scheduler.dispatch.pods import Share
from scheduler.dispatch.requests import Request, WorkflowKey
from scheduler.gateway.serving.recorder import BatchEnded, CallResult

log = structlog.get_logger(__name__)
CALLS_MAX: Final = 10_000  # about 40 bytes each, and 60 for a batch
CALL_ENDED: Final = "call ended"
BATCH_ENDED: Final = "batch ended"
_RESULTS: Final[tuple[CallResult, ...]] = ("hit", "miss", "dropped")
_CALL: Final = Struct("<3dB?")
"""End, arrival and deadline in ms, index of the result, true if it waited for a pod's start."""
_BATCH: Final = Struct("<3d2I")
"""End in ms, run time and that of the profile in s, rows, and those of single-stage calls."""
_CALL_BYTES: Final[int] = _CALL.size
_BATCH_BYTES: Final[int] = _BATCH.size


class CallLog:
    """The last calls and batches.

    They are columns, not an object each: among ten thousand, an old one has left the processor's
    caches when a new one takes its place, and an object with its numbers is several places.

    Args:
        calls_max: number of calls, and number of batches, that are kept.
    """

    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._max = calls_max
        self._calls = self._batches = 0
        self._call_workflows: list[WorkflowKey] = [("", "")] * calls_max
        self._call_numbers = bytearray(_CALL_BYTES * calls_max)
        self._batch_workflows: list[WorkflowKey] = [("", "")] * calls_max
        self._batch_stages = [""] * calls_max
        self._batch_shares = [Share("", 0, 0, 0)] * calls_max
        self._batch_numbers = bytearray(_BATCH_BYTES * calls_max)
        self._is_logged = log.is_enabled_for(logging.DEBUG)

    def call_ended(
        self, request: Request, result: CallResult, ended_ms: float, *, cold_start: bool
    ) -> None:
        """Note the end of a call; one of a single stage is left out."""
        if request.only is not None:
            return
        at = self._calls % self._max
        self._calls += 1
        self._call_workflows[at] = request.workflow
        _CALL.pack_into(
            self._call_numbers, _CALL_BYTES * at,
            ended_ms, request.arrival_ms, request.deadline_ms, _RESULTS.index(result), cold_start,
        )  # fmt: skip
        if self._is_logged:
            numbers = _CALL.unpack_from(self._call_numbers, _CALL_BYTES * at)
            log.debug(CALL_ENDED, **_fields_of_call(request.workflow, numbers))

    def batch_ended(self, ended: BatchEnded, ended_ms: float) -> None:
        """Note the end of a batch."""
        at = self._batches % self._max
        self._batches += 1
        self._batch_workflows[at] = ended.workflow
        self._batch_stages[at] = ended.stage
        self._batch_shares[at] = ended.share
        _BATCH.pack_into(
            self._batch_numbers, _BATCH_BYTES * at,
            ended_ms, ended.execute_s, ended.profiled_s, ended.rows, ended.single_stage_rows,
        )  # fmt: skip
        if self._is_logged:
            numbers = _BATCH.unpack_from(self._batch_numbers, _BATCH_BYTES * at)
            fields = _fields_of_batch(ended.workflow, ended.stage, ended.share, numbers)
            log.debug(BATCH_ENDED, **fields)

    def lines(self, unix_offset_ms: float) -> Iterator[dict[str, Any]]:
        """Iterate over the lines of a window of time from which no call or batch is missing.

        Args:
            unix_offset_ms: Unix time at zero of the clock, ms.
        """
        # Copies: calls end while a client reads.
        call_numbers, batch_numbers = bytes(self._call_numbers), bytes(self._batch_numbers)
        workflows = list(self._call_workflows)
        batches = list(
            zip(self._batch_workflows, self._batch_stages, self._batch_shares, strict=True)
        )
        calls_at, batches_at = self._places(self._calls), self._places(self._batches)
        full = [
            form.unpack_from(numbers, form.size * places[0])[0]
            for form, numbers, places in (
                (_CALL, call_numbers, calls_at),
                (_BATCH, batch_numbers, batches_at),
            )
            if len(places) == self._max
        ]
        begin_ms = max(full, default=0.0)

        def line(event: str, ended_ms: float, fields: dict[str, Any]) -> dict[str, Any]:
            at = datetime.fromtimestamp((unix_offset_ms + ended_ms) / 1000, UTC)
            return {"event": event, "timestamp": at.isoformat(), **fields}

        for at in calls_at:
            call = _CALL.unpack_from(call_numbers, _CALL_BYTES * at)
            if call[0] >= begin_ms:
                yield line(CALL_ENDED, call[0], _fields_of_call(workflows[at], call))
        for at in batches_at:
            batch = _BATCH.unpack_from(batch_numbers, _BATCH_BYTES * at)
            if batch[0] >= begin_ms:
                yield line(BATCH_ENDED, batch[0], _fields_of_batch(*batches[at], batch))

    def _places(self, ended: int) -> list[int]:
        """Return the places of the last ends, oldest first."""
        return [at % self._max for at in range(max(ended - self._max, 0), ended)]


def _fields_of_call(workflow: WorkflowKey, numbers: tuple[Any, ...]) -> dict[str, Any]:
    ended_ms, arrival_ms, deadline_ms, result, cold_start = numbers
    namespace, name = workflow
    return {
        "namespace": namespace,
        "workflow": name,
        "result": _RESULTS[result],
        "latency_s": (ended_ms - arrival_ms) / 1000,
        "allowed_s": (deadline_ms - arrival_ms) / 1000,
        "cold_start": cold_start,
    }


def _fields_of_batch(
    workflow: WorkflowKey, stage: str, share: Share, numbers: tuple[Any, ...]
) -> dict[str, Any]:
    _, execute_s, profiled_s, rows, single_stage_rows = numbers
    namespace, name = workflow
    return {
        "namespace": namespace,
        "workflow": name,
        "stage": stage,
        "rows": rows,
        "single_stage_rows": single_stage_rows,
        "execute_s": execute_s,
        "profiled_s": profiled_s,
        "gpu_model": share.gpu_model,
        "cpu": share.cpu,
        "gpu_percent": share.gpu_percent,
    }
