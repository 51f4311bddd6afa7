"""What is known of a planned stage: the K candidates, the best completion, what else time costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scheduler.model.plan import Completion, Plan
from workbench.reports.numbers import milliseconds, percent

TOLERANCE = 1e-9  # relative; what the order of summation may change


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """A stage's plan, and all that it means for the stages left; times in ms from now.

    Attributes:
        workflow: namespace/name.
        stage: the stage at hand.
        slo_ms: of the workflow, from its arrival.
        slack_ms: time left for the stages left.
        starts_ms: that were asked for, one for each kind of node.
        margin_ratio: by how much they may run over their profile and still keep within it.
        plan: the K candidates.
        completion: what the best candidate and every stage after it run under.
        budgets_ms: of each stage left, the part of the SLO that the split gives it: from, to.
    """

    workflow: str
    stage: str
    slo_ms: float
    slack_ms: float
    starts_ms: tuple[float, ...]
    margin_ratio: float
    plan: Plan
    completion: Completion
    budgets_ms: Mapping[str, tuple[float, float]]

    @property
    def to_plan_ms(self) -> float:
        """The time that the stages left may be planned to take."""
        return self.slack_ms / (1 + self.margin_ratio)

    @property
    def in_time(self) -> bool:
        """Whether the completion ends within the slack."""
        return self.completion.path_ms <= self.slack_ms * (1 + TOLERANCE)

    @property
    def looks_to_the_end(self) -> bool:
        """Whether the candidates' times and costs are of all stages left, not of a group alone."""
        best, whole = self.plan.candidates[0], self.completion
        return abs(
            best.path_cost_dollars - whole.cost_dollars
        ) <= TOLERANCE * whole.cost_dollars and (
            abs(best.path_ms - whole.path_ms) <= TOLERANCE * whole.path_ms
        )

    def remarks(self) -> list[str]:
        """What to know about the plan besides its numbers, a sentence each."""
        found = []
        if not self.plan.feasible:
            found.append(f"{self.plan.says}.")
        elif not self.in_time:
            late_ms = self.completion.path_ms - self.slack_ms
            found.append(
                "the stage at hand keeps its budget, but the later stages do not: the completion "
                f"ends {milliseconds(late_ms)} ms late."
            )
        if not self.plan.exact:
            found.append(
                "the search ended at its budget of work: at most "
                f"{percent(self.plan.epsilon)} above the least cost."
            )
        return [sentence[:1].upper() + sentence[1:] for sentence in found]


@dataclass(frozen=True, slots=True)
class Curve:
    """What the stages left cost in how much time, by one policy, at a sample of times.

    Attributes:
        policy: ``exact`` or ``esg``.
        points: (ms that the stages left may take, dollars per request), by rising time; None where
            the policy does not end in time, though it could be done.
        epsilon: of ``exact``: how far a point may be above the least cost, relatively.
    """

    policy: Literal["exact", "esg"]
    points: tuple[tuple[float, float | None], ...]
    epsilon: float = 0.0

    @property
    def name(self) -> str:
        """As people read it."""
        return {"exact": "least cost (exact)", "esg": "planned in groups (esg)"}[self.policy]
