"""Pods that did not start: a pause before the next one of their share, and an Event."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from scheduler.cluster.backoff import Backoff
from scheduler.cluster.events import EventType, Reference
from scheduler.dispatch.pods import FunctionKey, Share
from scheduler.model.function_server import FunctionServer

log = structlog.get_logger(__name__)
FIRST_S, LAST_S = 5.0, 300.0
REASON = "PodStartFailed"

RecordEvent = Callable[[Reference, EventType, str, str], None]
"""Receives an object, a type, a reason and a message."""


@dataclass(slots=True)
class _Pause:
    backoff: Backoff = field(default_factory=lambda: Backoff(start_s=FIRST_S, cap_s=LAST_S))
    until_ms: float = 0.0


class StartFailures:
    """Failures by function and share.

    Args:
        record_event: records an Event; returns at once.
        on_failure: called with function, share and time; the scaler may choose another share.
    """

    def __init__(
        self, record_event: RecordEvent, on_failure: Callable[[FunctionKey, Share, float], None]
    ) -> None:
        self._record_event = record_event
        self._on_failure = on_failure
        self._pauses: dict[FunctionKey, dict[Share, _Pause]] = {}
        self._texts: dict[FunctionKey, str] = {}

    def add(self, server: FunctionServer, pod: str, share: Share, why: str, now_ms: float) -> None:
        """Note that a pod did not start, or failed soon after it."""
        function = server.function_key
        pauses = self._pauses.setdefault(function, {})
        pause = pauses.setdefault(share, _Pause())
        if now_ms >= pause.until_ms:  # several pods may fail for one reason
            pause.until_ms = now_ms + 1000 * pause.backoff.next_s()
        pause_s = (pause.until_ms - now_ms) / 1000
        message = (
            f"pod {pod} ({share.cpu} vCPU, {share.gpu_percent} % of a {share.gpu_model}) did not "
            f"start: {why}; the next pod with this share is created after {pause_s:.0f} s, others "
            "may be created before"
        )
        self._texts[function] = f"pod {pod} did not start: {why}"
        log.warning("pod did not start", pod=pod, why=why, pause_s=round(pause_s, 1))
        reference = Reference.function_server(*server.key, server.metadata.uid)
        self._record_event(reference, "Warning", REASON, message)
        self._on_failure(function, share, now_ms)

    def is_paused(self, function: FunctionKey, share: Share, now_ms: float) -> bool:
        """Tell if no pod of the share is to be started now."""
        pause = self._pauses.get(function, {}).get(share)
        return pause is not None and now_ms < pause.until_ms

    def pause_text(self, function: FunctionKey, now_ms: float) -> str:
        """Return why no pod of the function starts at present; empty if one may."""
        pauses = self._pauses.get(function, {}).values()
        until_ms = max((pause.until_ms for pause in pauses), default=0.0)
        return self._texts[function] if now_ms < until_ms else ""

    def reset(self, function: FunctionKey, share: Share) -> None:
        """Forget the failures of a share whose pods work."""
        self._pauses.get(function, {}).pop(share, None)

    def forget(self, function: FunctionKey) -> None:
        """Forget a function."""
        self._pauses.pop(function, None)
        self._texts.pop(function, None)
