"""A planned stage: the K candidates, the best completion, cost over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scheduler.model.plan import Completion, Plan
from workbench.reports.numbers import milliseconds, percent

TOLERANCE = 1e-9  # relative; effect of the order of summation


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """A stage's plan and its consequences for the remaining stages; times in ms from now.

    Attributes:
        workflow: ``namespace/name`` of the workflow.
        stage: name of the current stage.
        slo_ms: SLO of the workflow, from its arrival.
        slack_ms: time for the remaining stages.
        starts_ms: start times of the plan, one for each kind of node.
        margin_ratio: part of the profiled time by which stages may exceed it and stay in time.
        plan: plan with the K candidates.
        completion: configurations of the best candidate and of every later stage.
        budgets_ms: part of the SLO of each remaining stage: start and end.
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
        """Time that the plan may use for the remaining stages."""
        return self.slack_ms / (1 + self.margin_ratio)

    @property
    def in_time(self) -> bool:
        """Return true if the completion ends within the slack."""
        return self.completion.path_ms <= self.slack_ms * (1 + TOLERANCE)

    @property
    def covers_workflow(self) -> bool:
        """Return true if the candidates cover all remaining stages, not only a group."""
        best, whole = self.plan.candidates[0], self.completion
        return abs(
            best.path_cost_dollars - whole.cost_dollars
        ) <= TOLERANCE * whole.cost_dollars and (
            abs(best.path_ms - whole.path_ms) <= TOLERANCE * whole.path_ms
        )

    def remarks(self) -> list[str]:
        """Return remarks about the plan, a sentence each."""
        sentences = []
        if not self.plan.feasible:
            sentences.append(f"{self.plan.message}.")
        elif not self.in_time:
            late_ms = self.completion.path_ms - self.slack_ms
            sentences.append(
                "the current stage meets its budget, but the later stages do not: the completion "
                f"ends {milliseconds(late_ms)} ms late."
            )
        if not self.plan.exact:
            sentences.append(
                "the plan is not exact: at most "
                f"{percent(self.plan.epsilon)} above the minimum cost."
            )
        return [sentence[:1].upper() + sentence[1:] for sentence in sentences]


@dataclass(frozen=True, slots=True)
class Curve:
    """Cost of the remaining stages over time under one policy, at a sample of times.

    Attributes:
        policy: ``exact`` or ``esg``.
        points: (ms for the remaining stages, dollars per request), by ascending time; None where
            the policy ends late although an in-time plan exists.
        epsilon: relative bound on a point's distance to the minimum cost, under ``exact``.
    """

    policy: Literal["exact", "esg"]
    points: tuple[tuple[float, float | None], ...]
    epsilon: float = 0.0

    @property
    def name(self) -> str:
        """Label of the curve."""
        return {"exact": "minimum cost (exact)", "esg": "planned in groups (esg)"}[self.policy]
