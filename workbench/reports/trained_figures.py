"""Figures of training clusters: job completion times, GPU use over time, Gantt of placements."""

from collections.abc import Callable, Sequence
from itertools import groupby

from matplotlib.collections import PolyCollection
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from workbench.reports.drawing import LINE, SERIES, Drawing
from workbench.reports.trained import TrainedBar, TrainedRun

_HEIGHT_IN = 3.4
_GPU_IN = 0.045  # height of a GPU's row
_GANTT_MIN_IN = 2.2
_LEGEND_COLUMNS_MAX = 4
_LEGEND_CHARACTERS = 108  # of a row, in which an entry's line and gap are as wide as ten
_LEGEND_LINE_CHARACTERS = 10
_DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))


def completion_times_figure(runs: Sequence[TrainedRun], label: str) -> str:
    """Draw the ratio of jobs that ended within a time, on a logarithmic axis."""

    def points(run: TrainedRun) -> tuple[list[float], list[float]]:
        count = len(run.jcts_h)
        return list(run.jcts_h), [(i + 1) / count for i in range(count)]

    return _lines(runs, "completion", label, points, "steps-post", "log")


def gpu_use_figure(runs: Sequence[TrainedRun], label: str) -> str:
    """Draw the ratio of GPUs in use over time."""

    def points(run: TrainedRun) -> tuple[list[float], list[float]]:
        return [x for x, _ in run.gpu_use], [y for _, y in run.gpu_use]

    return _lines(runs, "use", label, points, "default", "linear")


def gantt_figure(run: TrainedRun, number: int, label: str) -> str:
    """Draw the job of each GPU over time, a row per GPU."""
    drawing = Drawing(max(_GANTT_MIN_IN, 0.7 + _GPU_IN * run.gpus))
    axes = drawing.figure.subplots()
    ordered = sorted(run.bars, key=lambda bar: bar.job)
    for _, bars in groupby(ordered, key=lambda bar: bar.job):
        job_bars = list(bars)
        colour = SERIES[job_bars[0].job % len(SERIES)]
        boxes = PolyCollection(
            [_corners(bar) for bar in job_bars], facecolor=colour, edgecolor="none", alpha=0.8
        )
        axes.add_collection(boxes)
        drawing.say(boxes, job_bars[0].text)
    for first in run.node_firsts:
        axes.axhline(first, color=LINE, linewidth=0.5)
    axes.set_xlim(0, run.makespan_h or 1.0)
    axes.set_ylim(run.gpus, 0)
    axes.set_yticks(list(run.node_firsts), [f"node {n}" for n in range(len(run.node_firsts))])
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.grid(visible=False)
    axes.set_xlabel("hours since the first submission")
    return drawing.svg(f"gantt-{number}", label)


def _corners(bar: TrainedBar) -> list[tuple[float, float]]:
    return [
        (bar.begin_h, bar.first_gpu),
        (bar.end_h, bar.first_gpu),
        (bar.end_h, bar.end_gpu),
        (bar.begin_h, bar.end_gpu),
    ]


def _lines(  # noqa: PLR0913, PLR0917 - lines and their axes
    runs: Sequence[TrainedRun],
    name: str,
    label: str,
    points: Callable[[TrainedRun], tuple[list[float], list[float]]],
    steps: str,
    scale: str,
) -> str:
    drawing = Drawing(_HEIGHT_IN)
    axes = drawing.figure.subplots()
    for number, run in enumerate(runs):
        x, y = points(run)
        (line,) = axes.plot(
            x,
            y,
            color=SERIES[number % len(SERIES)],
            linestyle=_DASHES[number // len(SERIES) % len(_DASHES)],
            linewidth=1.5,
            drawstyle=steps,
            label=run.name,
        )
        drawing.say(line, run.name)
    axes.set_xscale(scale)
    if scale == "log":  # few runs span a decade: label its parts, too
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda hours, _: f"{hours:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(
        "job completion time, h" if scale == "log" else "hours since the first submission"
    )
    drawing.figure.legend(loc="outside lower center", ncols=_legend_columns(runs))
    return drawing.svg(name, label)


def _legend_columns(runs: Sequence[TrainedRun]) -> int:
    """Return the number of columns with which the longest names fit next to one another."""
    longest = max(len(run.name) for run in runs) + _LEGEND_LINE_CHARACTERS
    return max(1, min(len(runs), _LEGEND_COLUMNS_MAX, _LEGEND_CHARACTERS // longest))
