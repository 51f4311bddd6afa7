"""Timeline of one function pod, from the cluster's reports: created, bound, running, ended.

Kubernetes keeps these times in whole seconds, too coarse for SLOs of a few hundred milliseconds, so
each time is that of the *report*. A change without a report (the service was down, or its watch
broke) has no time, and no duration is derived from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from scheduler.model.grant import planned_run_ms
from scheduler.model.pod import FunctionPod

Ending = Literal["succeeded", "failed", "deleted"]


@dataclass(slots=True)
class PodTimeline:
    """Times of one pod, in seconds since the epoch; None: not yet, or without a report."""

    pod: FunctionPod
    created_s: float | None
    node: str | None = None
    bound_s: float | None = None
    running_s: float | None = None
    ended_s: float | None = None
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class StageEnded:
    """The end of a pod; a duration whose start or end is unknown is None."""

    timeline: PodTimeline
    queue_s: float | None  # created to bound
    start_s: float | None  # bound to running
    execute_s: float | None  # running to ended


def begin(raw: Mapping[str, Any], pod: FunctionPod, now_s: float, *, live: bool) -> PodTimeline:
    """Start the timeline of a new pod; ``live``: a watch reports its creation, not a list."""
    timeline = PodTimeline(pod, created_s=now_s if live else None)
    advance(timeline, raw, now_s, live=live)
    return timeline


def advance(
    timeline: PodTimeline, raw: Mapping[str, Any], now_s: float, *, live: bool = True
) -> bool:
    """Apply the pod's current state; return true if the pod has ended since the last one."""
    status = raw.get("status") or {}
    node = (raw.get("spec") or {}).get("nodeName")
    if node and timeline.node is None:
        timeline.node = node
        timeline.bound_s = now_s if live else None
    phase = status.get("phase")
    if phase in {"Running", "Succeeded", "Failed"} and timeline.running_s is None:
        timeline.running_s = now_s if live and phase == "Running" else None
    if phase in {"Succeeded", "Failed"} and timeline.ending is None:
        timeline.ending = "succeeded" if phase == "Succeeded" else "failed"
        timeline.ended_s = now_s if live else None
        return True
    return False


def predicted_end_s(timeline: PodTimeline, raw: Mapping[str, Any], now_s: float) -> float:
    """Return when a bound pod ends if it takes the planned times."""
    start_ms, stage_ms = planned_run_ms(raw)
    if timeline.running_s is not None:
        return timeline.running_s + stage_ms / 1000.0
    bound_s = now_s if timeline.bound_s is None else timeline.bound_s
    return bound_s + (start_ms + stage_ms) / 1000.0


def durations(timeline: PodTimeline) -> StageEnded:
    """Derive the durations of a pod's phases."""
    return StageEnded(
        timeline,
        _between_s(timeline.created_s, timeline.bound_s),
        _between_s(timeline.bound_s, timeline.running_s),
        _between_s(timeline.running_s, timeline.ended_s),
    )


def _between_s(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else max(0.0, end_s - start_s)
