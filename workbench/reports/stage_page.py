"""Page of ``esg plan --plot``: a stage's plan, and cost over time."""

from collections.abc import Sequence

from scheduler import __version__
from scheduler.search.cost_curves import Curve
from scheduler.search.planned_stage import PlannedStage
from workbench.reports.numbers import dollars_per_1000, from_to, milliseconds, percent
from workbench.reports.renderer import render, require_extra


def stage_page(
    planned: PlannedStage, curves: Sequence[Curve], facts: Sequence[tuple[str, str]]
) -> str:
    """Render the page as HTML.

    Args:
        planned: the stage's plan.
        curves: cost over time, the exact curve first; empty if there is no completion.
        facts: parameters of the plan, as names and texts.

    Raises:
        MissingLibraryError: a library of the extra ``report`` is not installed.
    """
    require_extra()
    from workbench.reports import drawing, stage_figures  # noqa: PLC0415 - they import matplotlib

    cost_label, stages_label = _cost_label(planned, curves), _stages_label(planned)
    with drawing.house_style():
        cost_svg = stage_figures.cost_figure(planned, curves, cost_label) if curves else ""
        stages_svg = stage_figures.stages_figure(planned, stages_label)
    return render(
        "stage.html.j2",
        planned=planned,
        curves=curves,
        facts=facts,
        functions_differ=any(run.stage != run.function for run in planned.completion.runs),
        cost_label=cost_label,
        cost_svg=cost_svg,
        stages_label=stages_label,
        stages_svg=stages_svg,
        ms=milliseconds,
        dollars=dollars_per_1000,
        from_to=from_to,
        version=__version__,
    )


def _cost_label(planned: PlannedStage, curves: Sequence[Curve]) -> str:
    """Describe the figure of costs in words."""
    plan = planned.completion
    plan_text = (
        f"The plan ends after {milliseconds(plan.path_ms)} ms and costs "
        f"${dollars_per_1000(plan.cost_dollars)} per 1,000 requests."
    )
    sentences = [plan_text]
    if len(planned.starts_ms) > 1:
        sentences.append(f"The line is for a start of {milliseconds(min(planned.starts_ms))} ms.")
    for curve in curves:
        feasible = [(time_ms, cost) for time_ms, cost in curve.points if cost is not None]
        if curve.policy == "exact":
            (first_ms, first), (last_ms, last) = feasible[0], feasible[-1]
            sentences.append(
                f"The fastest completion takes {milliseconds(first_ms)} ms and costs "
                f"${dollars_per_1000(first)}, the cheapest {milliseconds(last_ms)} ms and "
                f"${dollars_per_1000(last)}."
            )
        else:
            sentences.append(
                "Planned in groups, the line is over the available time: plans may end earlier."
            )
        if curve.epsilon:
            sentences.append(
                "The plans are not exact: the line is at most "
                f"{percent(curve.epsilon)} above the minimum cost."
            )
        if late := len(curve.points) - len(feasible):
            sentences.append(
                f"Planned in groups the workflow ends late at {late} of the {len(curve.points)} "
                "times on the curve; the line has gaps there."
            )
    return " ".join(sentences)


def _stages_label(planned: PlannedStage) -> str:
    """Describe the figure of stages in words."""
    runs = planned.completion.runs
    past = sum(run.end_ms > planned.budgets_ms[run.stage][1] for run in runs)
    return (
        f"Blue: planned runs of the {len(runs)} stages. Grey: its part of the SLO, "
        "split by dominators and average normalised length, counted back from the end of the "
        f"remaining time. Stages planned to end after their part: {past or 'none'}."
    )
