"""Log of a gateway: its calls and its batches, a line of JSON at the end of each.

A gateway writes it at level debug, and has the last lines in memory.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from scheduler.gateway.serving.call_log import BATCH_ENDED, CALL_ENDED
from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import listed, quoted, reason_of
from workbench.simulation.workloads.arrivals import UNLIMITED, ChunkedArrivals, WorkflowKey

_RESULTS = ("hit", "miss", "dropped")
_MS_PER_S = 1000.0
_SPAN_MIN_MS = 1000.0  # too short for a rate

StageKey = tuple[WorkflowKey, str]
_Line = TypeVar("_Line")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBatch:
    """One batch of the log.

    Attributes:
        stage: workflow and stage of the batch.
        single_stage_rows: number of rows of calls of this stage alone.
        execute_ms, profiled_ms: measured run time, and run time by the profile.
        cpu, gpu_percent, gpu_model: resources of the pod.
    """

    stage: StageKey
    rows: int
    single_stage_rows: int
    execute_ms: float
    profiled_ms: float
    cpu: int
    gpu_percent: int
    gpu_model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One call of a whole workflow.

    Attributes:
        arrival_ms: arrival, in ms since the epoch.
        result: hit, miss, or dropped: without an answer.
        latency_ms, allowed_ms: time to its end, and to its deadline.
        cold_start: true if it waited for the start of a pod.
    """

    workflow: WorkflowKey
    arrival_ms: float
    result: str
    latency_ms: float
    allowed_ms: float
    cold_start: bool


class _UnknownStageError(ValueError):
    """A line is of a workflow or stage that is not, or no longer, in the documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLog:
    """Calls and batches of a log, each in the order of the lines.

    Attributes:
        left_out: number of lines of workflows and stages that are not in the documents, by reason.
    """

    calls: tuple[LoggedCall, ...]
    batches: tuple[LoggedBatch, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    def arrivals(self) -> ChunkedArrivals:
        """Return the arrivals of the calls; the first one is at 0."""
        calls = sorted(self.calls, key=lambda call: call.arrival_ms)
        keys = tuple(sorted({call.workflow for call in calls}))
        times_ms = np.array([call.arrival_ms for call in calls]) - calls[0].arrival_ms
        numbers = np.array([keys.index(call.workflow) for call in calls], np.int32)
        return ChunkedArrivals(
            workflows=keys, blocks=lambda: iter([(times_ms, numbers)]), extent=UNLIMITED
        )

    @property
    def begins_cold(self) -> bool:
        """True if the log begins without pods.

        The first answer waited for the start of a pod. The first call of another workflow may have
        waited for pods that had started for others: it is late then.
        """
        answered = [call for call in self.calls if call.result != "dropped"]
        if not answered:
            return False
        first: dict[WorkflowKey, LoggedCall] = {}
        for call in sorted(self.calls, key=lambda call: call.arrival_ms):
            first.setdefault(call.workflow, call)
        return min(answered, key=lambda call: call.arrival_ms + call.latency_ms).cold_start and all(
            call.cold_start or call.result != "hit" for call in first.values()
        )

    def rates_rps(self) -> dict[WorkflowKey, float]:
        """Return the calls per second of each workflow."""
        times_ms = [call.arrival_ms for call in self.calls]
        span_s = max(max(times_ms) - min(times_ms), _SPAN_MIN_MS) / _MS_PER_S
        counts = Counter(call.workflow for call in self.calls)
        return {key: count / span_s for key, count in counts.items()}


def read_log(file: Path, catalogue: Catalogue) -> GatewayLog:
    """Read the calls and batches of a log; other lines are skipped.

    Raises:
        DocumentError: as `parse_log`; or the file cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read: {reason_of(error)}"
        raise DocumentError([Problem(str(file), "the file", "", message)]) from None
    remedy = "set ESG_LOG_LEVEL=debug and ESG_LOG_JSON=true for the gateway"
    return parse_log(lines, catalogue, str(file), remedy)


def parse_log(lines: Sequence[str], catalogue: Catalogue, source: str, remedy: str) -> GatewayLog:
    """Read the calls and batches among lines; others are skipped.

    Those of workflows and stages that are not in the catalogue are left out: documents change while
    a gateway runs.

    Args:
        lines: lines of a log.
        catalogue: documents of the gateway.
        source: name of the log in messages.
        remedy: what to do if it has no calls or no batches.

    Raises:
        DocumentError: a line is wrong, or no calls or no batches are left.
    """
    calls, unknown_calls = _read(source, lines, CALL_ENDED, partial(_call, catalogue), remedy)
    batches, unknown_batches = _read(source, lines, BATCH_ENDED, partial(_batch, catalogue), remedy)
    return GatewayLog(calls=calls, batches=batches, left_out=unknown_calls + unknown_batches)


def _read(
    source: str,
    lines: Iterable[str],
    event: str,
    parse: Callable[[dict[str, Any]], _Line],
    remedy: str,
) -> tuple[tuple[_Line, ...], Counter[str]]:
    """Return the lines of an event, and the number of those that are left out, by reason."""
    parsed, left_out = [], Counter[str]()
    for number, line in enumerate(lines, start=1):
        if event in line:
            try:
                fields = json.loads(line)
                if isinstance(fields, dict) and fields.get("event") == event:
                    parsed.append(parse(fields))
            except _UnknownStageError as error:
                left_out[str(error)] += 1
            except (KeyError, TypeError, ValueError) as error:
                reason = f"has no {error}" if isinstance(error, KeyError) else str(error)
                message = f"is no {event.removesuffix(' ended')} of the gateway's log: {reason}"
                raise DocumentError([Problem(source, f"line {number}", "", message)]) from None
    if not parsed:
        message = f"has no line with the event {event!r}; {remedy}"
        if left_out:
            message = f"all lines with the event {event!r} are left out: {listed([*left_out])}"
        raise DocumentError([Problem(source, "the log", "", message)])
    return tuple(parsed), left_out


def _call(catalogue: Catalogue, fields: dict[str, Any]) -> LoggedCall:
    key = str(fields["namespace"]), str(fields["workflow"])
    if key not in catalogue.workflows:
        raise _UnknownStageError(f"there is no workflow {quoted('/'.join(key))}")
    if fields["result"] not in _RESULTS:
        raise ValueError(f"result is {quoted(fields['result'])}")
    latency_ms = _duration_ms(fields, "latency_s", or_zero=True)
    ended_ms = _MS_PER_S * datetime.fromisoformat(fields["timestamp"]).timestamp()
    return LoggedCall(
        workflow=key,
        arrival_ms=ended_ms - latency_ms,
        result=fields["result"],
        latency_ms=latency_ms,
        allowed_ms=_duration_ms(fields, "allowed_s"),
        cold_start=bool(fields.get("cold_start")),
    )


def _batch(catalogue: Catalogue, fields: dict[str, Any]) -> LoggedBatch:
    namespace, workflow, stage = (str(fields[n]) for n in ("namespace", "workflow", "stage"))
    document = catalogue.workflows.get((namespace, workflow))
    name = quoted(f"{namespace}/{workflow}")
    if document is None:
        raise _UnknownStageError(f"there is no workflow {name}")
    if document.stage(stage) is None:
        raise _UnknownStageError(f"{name} has no stage {quoted(stage)}")
    return LoggedBatch(
        stage=((namespace, workflow), stage),
        rows=int(fields["rows"]),
        single_stage_rows=int(fields.get("single_stage_rows", 0)),
        execute_ms=_duration_ms(fields, "execute_s"),
        profiled_ms=_duration_ms(fields, "profiled_s"),
        cpu=int(fields["cpu"]),
        gpu_percent=int(fields["gpu_percent"]),
        gpu_model=str(fields["gpu_model"]),
    )


def _duration_ms(fields: dict[str, Any], name: str, *, or_zero: bool = False) -> float:
    duration_s = float(fields[name])
    if not (isfinite(duration_s) and (duration_s > 0 or (or_zero and duration_s == 0))):
        raise ValueError(f"{name} is {duration_s}, which is no duration")
    return _MS_PER_S * duration_s
