"""Interface of the owner of a dispatcher: the simulator, or the gateway."""

from collections.abc import Sequence
from typing import Protocol

from scheduler.dispatch.pods import Run
from scheduler.dispatch.requests import Job, Part, Request


class Actions(Protocol):
    """Actions of the owner. None of them calls the dispatcher back."""

    def enter(self, request: Request, stage: int, rows_max: int) -> Sequence[Part] | None:
        """Return the parts with which a request enters a stage, each of at most so many rows.

        None: the owner has ended the request.
        """
        ...

    def begin(self, run: Run) -> None:
        """Send a batch to its pod."""
        ...

    def end(self, request: Request, job: Job, now_ms: float) -> None:
        """Answer a request whose stages have all ended; ``job`` was its last."""
        ...

    def drop(self, request: Request, job: Job, reason: str, now_ms: float) -> None:
        """Refuse a request: ``late``, ``failed`` or ``removed`` (its workflow)."""
        ...
