"""Planning window of a stage: the stages planned together with it, and their deadline.

With policy ``exact`` the window contains all remaining stages, and they share the whole slack. With
``esg`` it ends with the stage's group, whose deadline is a part of the SLO.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from scheduler.search.chains.budget import budget_ratios
from scheduler.search.chains.slo_split import groups, split
from scheduler.search.dag import Dag
from scheduler.search.frontiers.frontier_arrays import ROUNDING


@dataclass(frozen=True, slots=True)
class PlanningWindow:
    """Planning window of one stage.

    Attributes:
        ahead: bit mask of the later stages that are planned together with it.
        before_ratio: part of the SLO that may have passed when the stage starts.
        reserved_ratio: part of the SLO reserved for the stages after the window.
    """

    ahead: int
    before_ratio: float
    reserved_ratio: float

    def budget_ms(self, slo_ms: float, slack_ms: float | None) -> float:
        """Return the time for the window; without a slack all earlier stages were on time."""
        if slack_ms is None:
            slack_ms = (1.0 - self.before_ratio) * slo_ms
        return slack_ms - self.reserved_ratio * slo_ms

    @classmethod
    def over_all(cls, dag: Dag, lengths: Sequence[float]) -> tuple[Self, ...]:
        """Return the window of each stage: all remaining stages, to the end of the SLO."""
        ratios = budget_ratios(dag, lengths)
        return tuple(
            cls(ahead, 1.0 - ratio, 0.0) for ahead, ratio in zip(dag.following, ratios, strict=True)
        )

    @classmethod
    def over_groups(cls, dag: Dag, lengths: Sequence[float], size: int) -> tuple[Self, ...]:
        """Return the window of each stage: the rest of its group, to the group's deadline."""
        shares = split(dag, lengths)
        windows = {}
        for group in groups(dag, size):
            last = group[-1]
            # Rounded up by more than the errors of sums, and of differences that callers passed:
            # those of a long SLO may be more than a short stage may be late.
            end_ratio = shares.before_ratio[last] + shares.own_ratio[last] + ROUNDING / 2
            for at, v in enumerate(group):
                ahead = sum(1 << w for w in group[at + 1 :])
                windows[v] = cls(ahead, shares.before_ratio[v], 1.0 - end_ratio)
        return tuple(windows[v] for v in range(len(lengths)))
