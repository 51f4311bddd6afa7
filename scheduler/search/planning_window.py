"""How far a search looks from a stage, and by when what it sees must be done.

``exact`` looks over all stages left, and the whole slack is theirs. ``esg`` looks to the end of the
stage's group, whose deadline is a part of the SLO.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from scheduler.search.budget import budget_ratios
from scheduler.search.dag import Dag
from scheduler.search.splitting import groups, split


@dataclass(frozen=True, slots=True)
class Horizon:
    """Of one stage.

    Attributes:
        ahead: the stages planned together with it, all after it, as a set of bits.
        before_ratio: the part of the SLO that may have passed when it starts.
        reserved_ratio: the part of the SLO kept for what comes after those ahead.
    """

    ahead: int
    before_ratio: float
    reserved_ratio: float

    def budget_ms(self, slo_ms: float, slack_ms: float | None) -> float:
        """Time for the stage and those ahead; without a slack, as if all before it kept theirs."""
        if slack_ms is None:
            slack_ms = (1.0 - self.before_ratio) * slo_ms
        return slack_ms - self.reserved_ratio * slo_ms

    @classmethod
    def over_all(cls, dag: Dag, lengths: Sequence[float]) -> tuple[Self, ...]:
        """Of each stage: all stages left, to the end of the SLO."""
        ratios = budget_ratios(dag, lengths)
        return tuple(
            cls(ahead, 1.0 - ratio, 0.0) for ahead, ratio in zip(dag.following, ratios, strict=True)
        )

    @classmethod
    def over_groups(cls, dag: Dag, lengths: Sequence[float], size: int) -> tuple[Self, ...]:
        """Of each stage: the rest of its group, to the group's own deadline."""
        shares = split(dag, lengths)
        horizons = {}
        for group in groups(dag, size):
            last = group[-1]
            end_ratio = shares.before_ratio[last] + shares.own_ratio[last]
            for at, v in enumerate(group):
                ahead = sum(1 << w for w in group[at + 1 :])
                horizons[v] = cls(ahead, shares.before_ratio[v], 1.0 - end_ratio)
        return tuple(horizons[v] for v in range(len(lengths)))
