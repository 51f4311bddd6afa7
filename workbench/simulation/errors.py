"""The room's own exceptions."""

from typing import TYPE_CHECKING, Self

from workbench.simulation.policy import QueueKey

if TYPE_CHECKING:
    from workbench.simulation.result import Result


class UnknownPolicyError(LookupError):
    """There is no policy of that name; the message says which there are."""


class WorkloadError(ValueError):
    """Arrivals that make no sense; the message says what is wrong with them."""


class PolicyError(RuntimeError):
    """A policy failed half-way.

    Attributes:
        result: of what had ended before.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.result: Result | None = None

    @classmethod
    def of(cls, policy: str, key: QueueKey | None, now_ms: float, problem: Exception) -> Self:
        """What went wrong, where and when; without a queue: at a rescaling."""
        asked = "asked to rescale" if key is None else f"asked about queue {'/'.join(key)}"
        return cls(
            f"policy {policy}, {asked} at {now_ms:,.3f} ms of the virtual clock: "
            f"{type(problem).__name__}: {problem}"
        )
