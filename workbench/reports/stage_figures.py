"""Figures of a stage's page: cost over time, and the plan by stage."""

from collections.abc import Sequence
from math import floor, log10, nan

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from scheduler.model.plan import Candidate
from scheduler.search.cost_curves import Curve
from scheduler.search.planned_stage import PlannedStage
from workbench.reports.drawing import BAND, FIRST, INK, SECOND, SELECTED, SOFT, Drawing
from workbench.reports.numbers import describe, dollars_per_1000, from_to, milliseconds

_COLOURS = {"exact": FIRST, "esg": SECOND}
_MANTISSAS = ((1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))
_TICKS_MIN, _TICKS_MAX = 4, 10
_STEPS = (1, 2, 2.5, 5, 10)  # of ticks on a linear axis
_BEYOND = 2.0  # factor by which the axis may extend past the data to show the remaining time
_NAME_MAX = 28  # characters of a stage's name; the page's table has the whole name


def cost_figure(planned: PlannedStage, curves: Sequence[Curve], label: str) -> str:
    """Draw the cost of the remaining stages over their time, and the plan."""
    drawing = Drawing(4.2)
    axes = drawing.figure.subplots()
    min_ms, max_ms = _span(planned, curves)
    axes.set_xscale("log")
    axes.set_xlim(min_ms, max_ms)
    _set_ticks(axes, min_ms, max_ms)
    for curve in curves:
        points = [*curve.points, (max_ms, curve.points[-1][1])]
        costs = [nan if cost is None else 1000 * cost for _, cost in points]
        axes.plot(
            [time_ms for time_ms, _ in points],
            costs,
            color=_COLOURS[curve.policy],
            drawstyle="steps-post",
            label=curve.name,
            linewidth=1.8,
        )
    _mark_candidates(drawing, axes, planned)
    if min_ms < planned.to_plan_ms < max_ms:
        _mark_time(axes, planned.to_plan_ms, f"{milliseconds(planned.to_plan_ms)} ms to plan for")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ms from now to the end of the workflow")
    axes.set_ylabel("$ per 1,000 requests")
    axes.legend(loc="upper right")
    return drawing.svg("cost", label)


def stages_figure(planned: PlannedStage, label: str) -> str:
    """Draw each stage's planned run over its part of the SLO."""
    runs = planned.completion.runs
    drawing = Drawing(1.0 + 0.55 * len(runs))
    axes = drawing.figure.subplots()
    for row, run in enumerate(runs):
        from_ms, to_ms = planned.budgets_ms[run.stage]
        (behind,) = axes.barh(row, to_ms - from_ms, 0.84, from_ms, color=BAND)
        drawing.say(behind, f"{run.stage}: budget {from_to((from_ms, to_ms))} ms")
        (bar,) = axes.barh(row, run.end_ms - run.start_ms, 0.42, run.start_ms, color=FIRST)
        drawing.say(
            bar,
            f"{run.stage}: {from_to((run.start_ms, run.end_ms))} ms, "
            f"{describe(run.configuration)}, {run.gpu_model}, "
            f"${dollars_per_1000(run.cost_dollars)} per 1,000 requests",
        )
    labels = [f"{_short(run.stage)}\n{describe(run.configuration)}" for run in runs]
    axes.set_yticks(range(len(runs)), labels)
    axes.set_ylim(len(runs) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=_STEPS))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    axes.set_xlabel("ms from now")
    if axes.get_xlim()[0] < 0:
        axes.axvline(0, color=SOFT, linewidth=0.8)
    _mark_time(
        axes, planned.slack_ms, f"end of the remaining time: {milliseconds(planned.slack_ms)} ms"
    )
    return drawing.svg("stages", label)


def _span(planned: PlannedStage, curves: Sequence[Curve]) -> tuple[float, float]:
    """Range of the axis: all data, and the planning time if it is near."""
    times_ms = [time_ms for curve in curves for time_ms, _ in curve.points]
    times_ms.append(planned.completion.path_ms)
    if planned.covers_workflow:
        times_ms += [candidate.path_ms for candidate in planned.plan.candidates]
    min_ms, max_ms = min(times_ms), max(times_ms)
    if min_ms / _BEYOND <= planned.to_plan_ms <= max_ms * _BEYOND:
        min_ms, max_ms = min(min_ms, planned.to_plan_ms), max(max_ms, planned.to_plan_ms)
    return 0.93 * min_ms, 1.07 * max_ms


def _mark_candidates(drawing: Drawing, axes: Axes, planned: PlannedStage) -> None:
    """Mark the plan, and the other candidates if their costs cover all remaining stages."""
    best, whole = planned.plan.candidates[0], planned.completion
    cost = 1000 * whole.cost_dollars
    (mark,) = axes.plot(whole.path_ms, cost, "D", color=SELECTED, markersize=8.0, label="the plan")
    drawing.say(mark, f"the plan: {_summary(best, whole.path_ms, whole.cost_dollars)}")
    if not planned.covers_workflow:
        return
    label: str | None = "the other candidates"
    for rank, candidate in enumerate(planned.plan.candidates[1:], start=2):
        cost = 1000 * candidate.path_cost_dollars
        (mark,) = axes.plot(
            candidate.path_ms,
            cost,
            "o",
            color=INK,
            markerfacecolor="none",
            markersize=5.0,
            label=label,
        )
        drawing.say(
            mark,
            f"candidate {rank}: "
            f"{_summary(candidate, candidate.path_ms, candidate.path_cost_dollars)}",
        )
        label = None


def _summary(candidate: Candidate, path_ms: float, cost_dollars: float) -> str:
    return (
        f"{describe(candidate.configuration)}, {candidate.gpu_model}; {milliseconds(path_ms)} ms, "
        f"${dollars_per_1000(cost_dollars)} per 1,000 requests"
    )


def _mark_time(axes: Axes, time_ms: float, label: str) -> None:
    """Draw a vertical line with a label above."""
    axes.axvline(time_ms, color=SOFT, linewidth=1.0, linestyle=(0, (4, 3)))
    place = axes.transAxes.inverted().transform(axes.transData.transform((time_ms, 0.0)))[0]
    axes.text(
        time_ms,
        1.02,
        label,
        transform=axes.get_xaxis_transform(),
        ha="right" if place > 1 / 2 else "left",
        color=SOFT,
    )


def _set_ticks(axes: Axes, min_ms: float, max_ms: float) -> None:
    """Set 4 to 10 round ticks on a logarithmic axis."""
    powers = range(floor(log10(min_ms)), floor(log10(max_ms)) + 1)
    for mantissas in _MANTISSAS:
        ticks = [m * 10.0**power for power in powers for m in mantissas]
        ticks = [tick for tick in ticks if min_ms <= tick <= max_ms]
        if len(ticks) <= _TICKS_MAX:
            break
    if len(ticks) < _TICKS_MIN:
        ticks = list(MaxNLocator(6, steps=_STEPS).tick_values(min_ms, max_ms))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def _tick(value: float, _: float | None) -> str:
    return f"{value:,.6g}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"
