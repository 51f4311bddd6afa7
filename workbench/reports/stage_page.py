"""The page of ``esg plan --plot``: a stage's plan, and what else time would cost."""

from collections.abc import Sequence

from scheduler import __version__
from workbench.reports.numbers import dollars_per_1000, from_to, milliseconds, percent
from workbench.reports.planned import Curve, PlannedStage
from workbench.reports.writing import need_libraries, written


def stage_page(
    planned: PlannedStage, curves: Sequence[Curve], facts: Sequence[tuple[str, str]]
) -> str:
    """The whole page as HTML.

    Args:
        planned: what it is about.
        curves: what time costs, the exact curve first; none where no completion can be had.
        facts: what the plan was asked with, as names and texts.

    Raises:
        MissingLibraryError: a library of the extra ``report`` is not installed.
    """
    need_libraries()
    from workbench.reports import drawing, stage_figures  # noqa: PLC0415 - they import matplotlib

    cost_told, stages_told = _cost_told(planned, curves), _stages_told(planned)
    with drawing.house_style():
        cost_svg = stage_figures.cost_figure(planned, curves, cost_told) if curves else ""
        stages_svg = stage_figures.stages_figure(planned, stages_told)
    return written(
        "stage.html.j2",
        planned=planned,
        curves=curves,
        facts=facts,
        functions_differ=any(run.stage != run.function for run in planned.completion.runs),
        cost_told=cost_told,
        cost_svg=cost_svg,
        stages_told=stages_told,
        stages_svg=stages_svg,
        ms=milliseconds,
        dollars=dollars_per_1000,
        from_to=from_to,
        version=__version__,
    )


def _cost_told(planned: PlannedStage, curves: Sequence[Curve]) -> str:
    """What the figure of costs shows, in words."""
    plan = planned.completion
    plan_told = (
        f"The plan ends after {milliseconds(plan.path_ms)} ms and costs "
        f"${dollars_per_1000(plan.cost_dollars)} per 1,000 requests."
    )
    told = [plan_told]
    if len(planned.starts_ms) > 1:
        told.append(f"The line is for a start of {milliseconds(min(planned.starts_ms))} ms.")
    for curve in curves:
        kept = [(time_ms, cost) for time_ms, cost in curve.points if cost is not None]
        if curve.policy == "exact":
            (first_ms, first), (last_ms, last) = kept[0], kept[-1]
            told.append(
                f"The fastest completion takes {milliseconds(first_ms)} ms and costs "
                f"${dollars_per_1000(first)}, the cheapest {milliseconds(last_ms)} ms and "
                f"${dollars_per_1000(last)}."
            )
        else:
            told.append("Planned in groups, the line is over the time given: plans may end before.")
        if curve.epsilon:
            told.append(
                "The searches ended at their budget of work: the line is at most "
                f"{percent(curve.epsilon)} above the least cost."
            )
        if late := len(curve.points) - len(kept):
            told.append(
                f"Planned in groups the workflow ends late at {late} of the {len(curve.points)} "
                "times tried; the line has gaps there."
            )
    return " ".join(told)


def _stages_told(planned: PlannedStage) -> str:
    """What the figure of stages shows, in words."""
    runs = planned.completion.runs
    past = sum(run.end_ms > planned.budgets_ms[run.stage][1] for run in runs)
    return (
        f"Blue: when each of the {len(runs)} stages is planned to run. Grey: its part of the SLO, "
        "split by dominators and average normalised length, counted back from the end of the time "
        f"left. Planned to end past that: {past or 'none'}."
    )
