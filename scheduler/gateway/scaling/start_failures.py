"""Pods that did not start: an Event, and the text for calls that wait for one."""

import structlog

from scheduler.cluster.events import RecordEvent, Reference
from scheduler.dispatch.pods import FunctionKey, Share
from scheduler.model.function_server import FunctionServer

log = structlog.get_logger(__name__)
REASON = "PodStartFailed"


class StartFailures:
    """Last failure of each function.

    Args:
        record_event: records an Event; returns at once.
    """

    def __init__(self, record_event: RecordEvent) -> None:
        self._record_event = record_event
        self._texts: dict[FunctionKey, str] = {}

    def add(
        self, server: FunctionServer, pod: str, share: Share, why: str, *, pause_ms: float
    ) -> None:
        """Report that a pod did not start, or failed soon after it.

        Args:
            server: server of the pod's function.
            pod: name of the pod.
            share: share of the pod.
            why: cause of the failure.
            pause_ms: time until the next pod with this share may start.
        """
        pause_s = pause_ms / 1000
        message = (
            f"pod {pod} ({share.cpu} vCPU, {share.gpu_percent} % of a {share.gpu_model}) did not "
            f"start: {why}; the next pod with this share is created after {pause_s:.0f} s, others "
            "may be created before"
        )
        self._texts[server.function_key] = f"pod {pod} did not start: {why}"
        log.warning("pod did not start", pod=pod, why=why, pause_s=round(pause_s, 1))
        reference = Reference.function_server(*server.key, server.metadata.uid)
        self._record_event(reference, type="Warning", reason=REASON, message=message)

    def text(self, function: FunctionKey) -> str | None:
        """Return why the last pod of a function did not start; None without a failure."""
        return self._texts.get(function)

    def forget(self, function: FunctionKey) -> None:
        """Forget a function."""
        self._texts.pop(function, None)
