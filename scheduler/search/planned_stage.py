"""A planned stage: the K candidates, and the best completion with its parts of the SLO."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.model.documents import Workflow
from scheduler.model.plan import Completion, Plan
from scheduler.search.completion import complete
from scheduler.search.cost_curves import TOLERANCE
from scheduler.search.planner import Planner, PlanRequest


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
        return (self.slack_ms - self.plan.later_waits_ms) / (1 + self.margin_ratio)

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
                f"ends {late_ms:,.1f} ms late."
            )
        if not self.plan.exact:
            sentences.append(
                "the plan is not exact: at most "
                f"{100 * self.plan.epsilon:.3g} % above the minimum cost."
            )
        return [sentence[:1].upper() + sentence[1:] for sentence in sentences]

    def as_json(self) -> dict[str, Any]:
        """Build the output of ``esg plan --json``: the plan, and the completion by stage."""
        completion = [
            {
                "stage": run.stage,
                "function": run.function,
                "batch": run.configuration.batch,
                "cpu": run.configuration.cpu,
                "gpu_percent": run.configuration.gpu_percent,
                "memory_mib": run.configuration.memory_mib,
                "gpu_model": run.gpu_model,
                "from_ms": run.start_ms,
                "to_ms": run.end_ms,
                "cost": run.cost_dollars,
                "budget_from_ms": self.budgets_ms[run.stage][0],
                "budget_to_ms": self.budgets_ms[run.stage][1],
            }
            for run in self.completion.runs
        ]
        return {**self.plan.as_json(), "completion": completion}


def planned_stage(planner: Planner, request: PlanRequest, workflow: Workflow) -> PlannedStage:
    """Plan a stage and the stages behind it; raises what `Planner.plan` raises."""
    plan = planner.plan(request)
    completion = complete(planner, request)
    slo_ms = workflow.spec.slo.latency_ms
    slack_ms = planner.stage(request).slack_ms(request.slack_ms)
    budgets_ms = planner.budgets_ms(*workflow.key)
    # The split counts from the arrival, and the plan from now.
    passed_ms = slo_ms - slack_ms
    return PlannedStage(
        workflow="/".join(workflow.key),
        stage=request.stage,
        slo_ms=slo_ms,
        slack_ms=slack_ms,
        starts_ms=request.starts_ms,
        margin_ratio=plan.margin_ratio,
        plan=plan,
        completion=completion,
        budgets_ms={
            run.stage: (from_ms - passed_ms, to_ms - passed_ms)
            for run in completion.runs
            for from_ms, to_ms in [budgets_ms[run.stage]]
        },
    )
