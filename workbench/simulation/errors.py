"""Exceptions of the simulation."""

from pathlib import Path
from traceback import extract_tb
from typing import Self

from workbench.simulation.policy import QueueKey
from workbench.simulation.result import Result

_SIMULATOR = str(Path(__file__).parent)


class UnknownPolicyError(LookupError):
    """The registry has no policy of that name; the message lists those it has."""


class RunError(Exception):
    """A run failed half-way.

    Attributes:
        result: result of the requests that ended before; None if the run had not begun.
    """

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class WorkloadError(RunError, ValueError):
    """Arrivals go back in time, or name no workflow."""


class PolicyError(RunError):
    """A policy raised an exception, or its answer cannot be used."""

    @classmethod
    def of(cls, policy: str, key: QueueKey | None, now_ms: float, problem: Exception) -> Self:
        """Name the policy, the queue (None: a rescaling), the time and the cause."""
        call = "called to rescale" if key is None else f"called for queue {'/'.join(key)}"
        return cls(
            f"policy {policy}, {call} at {now_ms:,.3f} ms of the virtual clock: "
            f"{described(problem)}"
        )


def described(problem: Exception) -> str:
    """Return type and text of an error, with file and line in the policy of a user."""
    return f"{type(problem).__name__}: {problem}{_place(problem)}"


def _place(problem: Exception) -> str:
    for frame in extract_tb(problem.__traceback__):
        if not frame.filename.startswith((_SIMULATOR, "<")):  # "<frozen importlib…>"
            return f" ({frame.filename}:{frame.lineno})"
    return ""
