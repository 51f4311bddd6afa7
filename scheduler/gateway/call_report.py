"""Reports of traced calls: each stage with its times, and the reason why a call was late.

The reason is read from the critical path: the chain of batches, each of which began when the one
before it ended. Its time is divided into parts. The largest part that the plan had not counted on
is the cause.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from scheduler.gateway.serving.call_trace import Attempt, CallTrace, TracedRun, Wait

CAUSES: Final = {
    "receive": "its body, its access check or a proxy took the time before it entered a queue",
    "cold_start": "it waited for the start of a pod",
    "queue": "it waited while pods ran other batches",
    "share": "it waited for a free share in the slices of the pool",
    "no_pod": "no pod of the function existed or was starting",
    "retries": "batches failed and it ran again",
    "failed": "its last batch failed, and it did not run again",
    "over_profile": "batches ran longer than their profile, or their network was slow",
    "plan": "the run times of the profile alone exceed what was left",
    "answer": "the gateway took the time after its last batch",
}
"""Causes of a late or unanswered call, in words."""
_WITHOUT_A_PART: Final = ("failed", "plan")
_TICK_MS = 1e-6  # equal times may differ by rounding


class StageTimes(NamedTuple):
    """Times of one attempt, ms.

    Attributes:
        cold_start, queue, share: parts of the wait.
        run: time from the expected begin in the pod to the end.
        profile, over_profile: parts of the run: up to the profile's time, and beyond.
    """

    cold_start: float
    queue: float
    share: float
    run: float
    profile: float
    over_profile: float


def stage_times(attempt: Attempt, now_ms: float) -> StageTimes:
    """Divide the time of an attempt; one that runs ends now."""
    run, since_ms, _ = attempt
    ended_ms = min(run.ended_ms, now_ms)
    begin_ms = min(max(run.execute_ms, run.begin_ms), max(ended_ms, run.begin_ms))
    wait_ms = max(begin_ms - since_ms, 0.0)
    busy_ms = min(max(run.pod_idle_ms - since_ms, 0.0), wait_ms)
    idle_ms = wait_ms - busy_ms
    run_ms = max(ended_ms - begin_ms, 0.0)
    profile_ms = min(run_ms, run.profiled_ms)
    return StageTimes(
        cold_start=busy_ms if run.is_first else 0.0,
        queue=(0.0 if run.is_first else busy_ms) + (0.0 if run.pooled else idle_ms),
        share=idle_ms if run.pooled else 0.0,
        run=run_ms,
        profile=profile_ms,
        over_profile=run_ms - profile_ms,
    )


def critical_path(trace: CallTrace) -> Sequence[Attempt]:
    """Return the attempts that led to the end of a call, the first one first.

    Before each comes the one that ended last of its own stage and of the stages in front of it.
    """
    path: list[Attempt] = []
    wait = _first_wait(trace)
    at_ms, stage = (math.inf, None) if wait is None else (wait.since_ms, wait.stage)
    candidates = list(trace.attempts)
    while True:
        ended = [
            attempt
            for attempt in candidates
            if _ended_ms(attempt[0], trace) <= at_ms + _TICK_MS
            and _leads_to(attempt[0].stage, stage, trace)
        ]
        if not ended:
            return path[::-1]
        # Of several that ended at once, by a clock of milliseconds, the one that began last.
        last = max(reversed(ended), key=lambda attempt: _ended_ms(attempt[0], trace))
        path.append(last)
        candidates.remove(last)
        at_ms, stage = last[1], last[0].stage


def _leads_to(stage: int, following: int | None, trace: CallTrace) -> bool:
    """Return true if a stage is the following one, or in front of it; None: the call's end."""
    return following is None or stage == following or following in trace.successors[stage]


def _first_wait(trace: CallTrace) -> Wait | None:
    return min(trace.waits, key=lambda wait: wait.since_ms, default=None)


def _ended_ms(run: TracedRun, trace: CallTrace) -> float:
    return min(run.ended_ms, trace.ended_ms)


def parts_ms(trace: CallTrace) -> dict[str, float]:
    """Divide the time of a call on its critical path; the parts add up to it."""
    names = ("receive", *CAUSES, "profile")
    parts = dict.fromkeys((name for name in names if name not in _WITHOUT_A_PART), 0.0)
    path = critical_path(trace)
    wait = _first_wait(trace)
    since_ms = [attempt[1] for attempt in path] + ([] if wait is None else [wait.since_ms])
    entry_ms = since_ms[0] if since_ms else trace.ended_ms
    parts["receive"] = max(entry_ms - trace.arrival_ms, 0.0)
    at_ms = entry_ms
    for attempt in path:
        run, joined_ms, _ = attempt
        parts["answer"] += max(joined_ms - at_ms, 0.0)
        at_ms = _ended_ms(run, trace)
        if run.error:
            parts["retries"] += at_ms - joined_ms
            continue
        times = stage_times(attempt, trace.ended_ms)
        for name in ("cold_start", "queue", "share", "profile", "over_profile"):
            parts[name] += getattr(times, name)
    if wait is not None:
        parts[wait.missing] += trace.ended_ms - wait.since_ms
    else:
        parts["answer"] += trace.ended_ms - at_ms
    return parts


def cause(trace: CallTrace, parts: dict[str, float]) -> str | None:
    """Return the key in `CAUSES` of what made a call late or ended it; None: it was in time."""
    if trace.result == "hit":
        return None
    if trace.result == "dropped" and not trace.waits and trace.attempts:
        last, *_ = trace.attempts[-1]
        if last.error:
            return "failed"
    allowed_ms = trace.deadline_ms - trace.arrival_ms
    extra = {name: time_ms for name, time_ms in parts.items() if name in CAUSES}
    largest = max(extra, key=lambda name: extra[name])
    is_planned = parts["profile"] > allowed_ms or extra[largest] <= _TICK_MS
    return "plan" if is_planned else largest


def report(trace: CallTrace, *, unix_offset_ms: float) -> dict[str, Any]:
    """Describe a call; times are milliseconds after its arrival.

    Args:
        trace: trace of the call.
        unix_offset_ms: Unix time at zero of the clock of the trace, ms.
    """
    parts = parts_ms(trace)
    on_path = set(map(id, critical_path(trace)))
    return summary(trace, parts, unix_offset_ms=unix_offset_ms) | {
        "parts_ms": {name: _rounded(time_ms) for name, time_ms in parts.items()},
        "stages": [
            _stage(trace, attempt, is_critical=id(attempt) in on_path) for attempt in trace.attempts
        ],
        "waits": [
            {
                "stage": trace.stages[wait.stage],
                "since_ms": _rounded(wait.since_ms - trace.arrival_ms),
                "missing": wait.missing,
            }
            for wait in trace.waits
        ],
    }


def summary(
    trace: CallTrace, parts: dict[str, float] | None = None, *, unix_offset_ms: float
) -> dict[str, Any]:
    """Describe a call in one line; see `report`."""
    reason = cause(trace, parts_ms(trace) if parts is None else parts)
    latency_ms = trace.ended_ms - trace.arrival_ms
    allowed_ms = trace.deadline_ms - trace.arrival_ms
    arrived = datetime.fromtimestamp((unix_offset_ms + trace.arrival_ms) / 1000, UTC)
    return {
        "id": trace.id,
        "client_id": trace.client_id,
        "trace_id": trace.trace_id or None,
        "namespace": trace.workflow[0],
        "workflow": trace.workflow[1],
        "only_stage": None if trace.only is None else trace.stages[trace.only],
        "arrived": arrived.isoformat(timespec="milliseconds"),
        "result": trace.result,
        "error": trace.error,
        "latency_ms": _rounded(latency_ms),
        "allowed_ms": _rounded(allowed_ms),
        "late_ms": _rounded(max(latency_ms - allowed_ms, 0.0)),
        "cause": reason,
        "explanation": "" if reason is None else CAUSES[reason],
    }


def _stage(trace: CallTrace, attempt: Attempt, *, is_critical: bool) -> dict[str, Any]:
    run, since_ms, is_late = attempt
    arrival_ms = trace.arrival_ms
    is_ended = run.ended_ms <= trace.ended_ms
    times = stage_times(attempt, trace.ended_ms)
    return {
        "stage": trace.stages[run.stage],
        "pod": run.pod,
        "node": run.node,
        "gpu_model": run.share.gpu_model,
        "cpu": run.share.cpu,
        "gpu_percent": run.share.gpu_percent,
        "pooled": run.pooled,
        "rows": run.rows,
        "planned_batch": run.batch,
        "since_ms": _rounded(since_ms - arrival_ms),
        "begin_ms": _rounded(run.begin_ms - arrival_ms),
        "execute_ms": _rounded(run.execute_ms - arrival_ms),
        "ended_ms": _rounded(run.ended_ms - arrival_ms) if is_ended else None,
        "planned_end_ms": _rounded(run.predicted_end_ms - arrival_ms),
        "profiled_ms": _rounded(run.profiled_ms),
        "slack_ms": _rounded(trace.deadline_ms - run.begin_ms),
        "served_as_late": is_late,
        "critical": is_critical,
        "error": run.error,
        **{f"{name}_ms": _rounded(time_ms) for name, time_ms in times._asdict().items()},
    }


def _rounded(time_ms: float) -> float | None:
    return round(time_ms, 3) if math.isfinite(time_ms) else None


def newest(
    traces: Iterable[CallTrace], number: int, *, unix_offset_ms: float
) -> list[dict[str, Any]]:
    """Describe the last late calls in one line each, the newest first."""
    late: list[dict[str, Any]] = []
    for trace in traces:
        if len(late) >= number:
            break
        if trace.result != "hit":
            late.append(summary(trace, unix_offset_ms=unix_offset_ms))
    return late
