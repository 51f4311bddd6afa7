"""The life of one function pod, as the cluster shows it: created, bound, running, ended.

Kubernetes keeps these moments in whole seconds, too coarse for SLOs of a few hundred
milliseconds, so a moment is the time at which the change was *seen*. A change that nobody saw (the
service was away, or its watch broke) has no moment, and no duration is made up from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from scheduler.model.pod import FunctionPod

Ending = Literal["succeeded", "failed", "deleted"]


@dataclass(slots=True)
class PodTimeline:
    """One pod's moments, in seconds since the epoch; None: not yet, or not seen."""

    pod: FunctionPod
    created: float | None
    node: str | None = None
    bound: float | None = None
    running: float | None = None
    ended: float | None = None
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class StageEnded:
    """A pod has ended; the durations in seconds are None where their start was not seen."""

    life: PodTimeline
    queue_s: float | None  # created to bound
    start_s: float | None  # bound to running
    execute_s: float | None  # running to ended


def begin(raw: Mapping[str, Any], pod: FunctionPod, now: float, *, live: bool) -> PodTimeline:
    """A pod seen for the first time; ``live``: it was just created, not found by a list."""
    life = PodTimeline(pod, created=now if live else None)
    advance(life, raw, now, live=live)
    return life


def advance(life: PodTimeline, raw: Mapping[str, Any], now: float, *, live: bool = True) -> bool:
    """Take in what the cluster shows now; whether the pod has ended by it."""
    status = raw.get("status") or {}
    node = (raw.get("spec") or {}).get("nodeName")
    if node and life.node is None:
        life.node = node
        life.bound = now if live else None
    phase = status.get("phase")
    if phase in {"Running", "Succeeded", "Failed"} and life.running is None:
        life.running = now if live and phase == "Running" else None
    if phase in {"Succeeded", "Failed"} and life.ending is None:
        life.ending = "succeeded" if phase == "Succeeded" else "failed"
        life.ended = now if live else None
        return True
    return False


def durations(life: PodTimeline) -> StageEnded:
    """What the pod's life says about where its time went."""
    return StageEnded(
        life,
        _between(life.created, life.bound),
        _between(life.bound, life.running),
        _between(life.running, life.ended),
    )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
