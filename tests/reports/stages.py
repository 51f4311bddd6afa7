"""Factories of planned stages: two of three stages remain."""

from collections.abc import Sequence
from dataclasses import replace

from scheduler.model.plan import Candidate, Completion, Configuration, Plan, StageRun
from scheduler.search.cost_curves import Curve
from scheduler.search.planned_stage import PlannedStage

GPU = "NVIDIA A100-SXM4-80GB"
CURVES = (Curve("exact", ((80.0, 9e-5), (150.0, 4e-5), (175.0, 3.5e-5), (400.0, 2e-5))),)
FACTS = (("Policy", "exact"),)


def planned_stage(*, model: str = GPU, scale_factor: float = 1.0) -> PlannedStage:
    """The stage "segment", its successor "classify", and 200 ms (times the factor) for both."""
    first = Configuration(4, 2, 57, 1234, 100.25 * scale_factor)
    second = Configuration(1, 8, 28, 999, 75.0 * scale_factor)
    best = Candidate(first, model, 100.25 * scale_factor, 175.25 * scale_factor, 3.5e-5)
    second_best = Candidate(second, model, 90.5 * scale_factor, 165.5 * scale_factor, 4.125e-5)
    runs = (
        StageRun("segment", "segmentation", first, model, 0.0, 100.25 * scale_factor, 2e-5),
        StageRun(
            "classify",
            "classification",
            second,
            model,
            100.25 * scale_factor,
            175.25 * scale_factor,
            1.5e-5,
        ),
    )
    return PlannedStage(
        workflow="default/images",
        stage="segment",
        slo_ms=300.0 * scale_factor,
        slack_ms=200.0 * scale_factor,
        starts_ms=(0.0,),
        margin_ratio=0.0,
        plan=Plan(True, 200.0 * scale_factor, (best, second_best)),
        completion=Completion(runs),
        budgets_ms={
            "segment": (-10.0 * scale_factor, 110.0 * scale_factor),
            "classify": (110.0 * scale_factor, 200.0 * scale_factor),
        },
    )


def curves(scale_factor: float) -> tuple[Curve, ...]:
    """Return `CURVES` in other units of time."""
    return tuple(
        replace(
            curve, points=tuple((scale_factor * time_ms, cost) for time_ms, cost in curve.points)
        )
        for curve in CURVES
    )


def of_stages(count: int) -> PlannedStage:
    """Return a chain of equal stages."""
    template = planned_stage()
    run = template.completion.runs[0]
    names = [f"stage-{i}" for i in range(count)]
    runs = tuple(
        replace(run, stage=name, start_ms=100.0 * i, end_ms=100.0 * (i + 1))
        for i, name in enumerate(names)
    )
    budgets_ms = {name: (100.0 * i, 100.0 * (i + 1)) for i, name in enumerate(names)}
    return replace(template, stage=names[0], completion=Completion(runs), budgets_ms=budgets_ms)


def in_groups(points: Sequence[tuple[float, float | None]]) -> tuple[Curve, ...]:
    """Return the exact curve, and one by the paper's method."""
    return (*CURVES, Curve("esg", tuple(points)))
