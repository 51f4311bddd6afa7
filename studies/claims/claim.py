"""A claim of a published system, what is measured beside it, and the verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from studies.page import percent

_TOLERANCE_RATIO = 1e-9  # of sums of floats


class Verdict(StrEnum):
    """Outcome of a comparison, or of all comparisons of a claim."""

    REPRODUCED = "reproduced"
    IN_PART = "in part"
    NOT_REPRODUCED = "not reproduced"
    OUT_OF_SCOPE = "out of scope"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedChange:
    """A relative change of a figure that should fall, in several settings.

    Attributes:
        what: figure and rival.
        claimed_ratio: claimed change, below 0; 0: not worse.
        changes_ratio: measured change by setting; each is a mean over seeds.
        at_best: true if the claim is about the best setting ("up to").
        points: true if changes are differences of parts of a whole.
    """

    what: str
    claimed_ratio: float
    changes_ratio: Mapping[str, float]
    at_best: bool = False
    points: bool = False

    @property
    def verdict(self) -> Verdict:
        """Compare each setting with the claim.

        Reproduced: all settings reach it, or one of a claim that is about the best setting. In
        part: the figure falls in one setting, and rises in at most half of them.
        """
        values = list(self.changes_ratio.values())
        limit_ratio = self.claimed_ratio + _TOLERANCE_RATIO
        reaching = [value <= limit_ratio for value in values]
        if any(reaching) if self.at_best else all(reaching):
            return Verdict.REPRODUCED
        rising = sum(value > limit_ratio and value > _TOLERANCE_RATIO for value in values)
        in_part = min(values) < -_TOLERANCE_RATIO and 2 * rising <= len(values)
        return Verdict.IN_PART if in_part else Verdict.NOT_REPRODUCED

    @property
    def text(self) -> str:
        """Changes by setting."""
        cells = (
            f"{name}: {100 * value:+.1f} points" if self.points else f"{name}: {percent(value)}"
            for name, value in self.changes_ratio.items()
        )
        return f"{self.what}: {', '.join(cells)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row of the table.

    Attributes:
        system: name of the system.
        published: claim of its abstract.
        reason: reason of the difference, or of the missing experiment.
        measure: function that runs the experiment; None: the system is out of scope.
    """

    system: str
    published: str
    reason: str
    measure: Callable[[Path], Sequence[ClaimedChange]] | None = None


def overall(changes: Sequence[ClaimedChange]) -> Verdict:
    """Return the verdict that all comparisons share; in part, if they differ."""
    verdicts = {change.verdict for change in changes}
    return verdicts.pop() if len(verdicts) == 1 else Verdict.IN_PART


def claim_result(claim: Claim, changes: Sequence[ClaimedChange]) -> tuple[str, str]:
    """Return measured text and verdict of a claim that was measured, or that is out of scope."""
    if claim.measure is None:
        return "", Verdict.OUT_OF_SCOPE
    return "<br>".join(change.text for change in changes), overall(changes)
