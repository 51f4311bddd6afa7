"""Limits of the time that a pod of a template may be without batches."""

from typing import NamedTuple

from scheduler.gateway.scaling.pool_pod import PoolPod

SEEN_MS = 60_000.0  # a pod that was created is reported long before


class StartLimits(NamedTuple):
    """Times that a start may take, ms.

    Attributes:
        room_ms: longest time until the scheduler has found a node.
        start_ms: longest time from there until the pod takes batches, and without readiness
            afterwards.
    """

    room_ms: float = 30_000.0
    start_ms: float = 900_000.0


DEFAULT_LIMITS = StartLimits()


def overdue_text(pod: PoolPod, limits: StartLimits, now_ms: float) -> str | None:
    """Return why a pod is given up; None if it is not."""
    if pod.serving_ms is None:
        return _overdue_start(pod, limits, now_ms)
    if pod.unready_ms is None or now_ms - pod.unready_ms < limits.start_ms:
        return None
    age_s = (now_ms - pod.unready_ms) / 1000
    return f"it was ready, and has not been for {age_s:.0f} s; see its log"


def _overdue_start(pod: PoolPod, limits: StartLimits, now_ms: float) -> str | None:
    age_s = (now_ms - pod.since_ms) / 1000
    if pod.seen_ms is None:
        is_late = now_ms - pod.since_ms >= SEEN_MS
        return f"the API server has not reported it after {age_s:.0f} s" if is_late else None
    if pod.bound_ms is None:
        if now_ms - pod.seen_ms < limits.room_ms:
            return None
        reason = pod.unschedulable or "the scheduler has not said why; check that it runs"
        return f"no node has room for it after {age_s:.0f} s: {reason}"
    if now_ms - pod.bound_ms < limits.start_ms:
        return None
    state = "its model is not ready" if pod.server_pod else "its containers have not started"
    return f"{state} {(now_ms - pod.bound_ms) / 1000:.0f} s after it got a node; see its log"
