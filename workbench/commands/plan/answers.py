"""Results of ``esg plan``: the planner's answers as report data, JSON and facts."""

from typing import Any

from scheduler.model.documents import Workflow
from scheduler.search.completion import complete
from scheduler.search.planner import Planner, PlanRequest
from scheduler.settings import Settings
from workbench.reports.planned import PlannedStage


def planned_stage(planner: Planner, request: PlanRequest, workflow: Workflow) -> PlannedStage:
    """A stage's plan and the completion behind it; raises what `Planner.plan` raises."""
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


def as_json(planned: PlannedStage) -> dict[str, Any]:
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
            "budget_from_ms": planned.budgets_ms[run.stage][0],
            "budget_to_ms": planned.budgets_ms[run.stage][1],
        }
        for run in planned.completion.runs
    ]
    return {**planned.plan.as_json(), "completion": completion}


def facts(settings: Settings, request: PlanRequest, margin_ratio: float) -> list[tuple[str, str]]:
    """List the options of the plan for readers of the page."""
    groups = f", groups of at most {settings.group_size}" if settings.policy == "esg" else ""
    prices = (
        f"${settings.vcpu_hour_dollars:g} a vCPU-hour, ${settings.gpu_hour_dollars:g} a GPU-hour"
    )
    prices += "".join(
        f", ${dollars:g} of {model}" for model, dollars in settings.gpu_hour_dollars_of.items()
    )
    ceilings = [
        f"{limit:,} {unit}"
        for limit, unit in (
            (request.cpu_max, "vCPU"),
            (request.gpu_percent_max, "% of a GPU"),
            (request.memory_mib_max, "MiB of GPU memory"),
            (request.queued, "requests a batch"),
        )
        if limit is not None
    ]
    starts = ", ".join(f"{start_ms:,g}" for start_ms in request.starts_ms)
    named = [
        ("Policy", settings.policy + groups),
        ("Times", {"mean": "the profiles' means", "p95": "95th percentiles"}[settings.latency]),
        ("Prices", prices),
        ("Margin", f"{100 * margin_ratio:.3g} %" if margin_ratio else ""),
        ("The stage has at most", ", ".join(ceilings)),
        ("Rate", "" if request.rate_rps is None else f"{request.rate_rps:,g} requests a second"),
        ("GPU models", ", ".join(request.fleet.models if request.fleet else ())),
        ("Starts within", "" if request.starts_ms == (0.0,) else f"{starts} ms"),
    ]
    return [(name, text) for name, text in named if text]
