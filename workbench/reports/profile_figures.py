"""Figure of a profile: latency over batch, a panel for each number of vCPUs, a line for a share."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from scheduler.model.documents import GpuProfile, ProfiledConfiguration
from workbench.reports.drawing import SERIES, Drawing
from workbench.reports.numbers import milliseconds

PANELS_MAX = 4
LINES_MAX = len(SERIES)
_TICKS_MAX = 8


def latency_figure(gpu: GpuProfile, name: str, label: str) -> str:
    """Draw the latencies of a function on one GPU model.

    Args:
        gpu: GPU model with its configurations.
        name: name of the figure, unique on the page.
        label: description for readers who cannot see the figure.
    """
    cpus = spread((c.cpu for c in gpu.configurations), PANELS_MAX)
    percents = spread((c.gpu_percent for c in gpu.configurations), LINES_MAX)
    drawing = Drawing(3.6)
    panels = drawing.figure.subplots(1, len(cpus), sharey=True, squeeze=False)[0]
    for axes, cpu in zip(panels, cpus, strict=True):
        for colour, percent in zip(SERIES, percents, strict=False):
            line = sorted(
                (c for c in gpu.configurations if (c.cpu, c.gpu_percent) == (cpu, percent)),
                key=lambda c: c.batch,
            )
            _draw(drawing, axes, line, colour)
        axes.set_title(f"{cpu} vCPU", fontsize=11)
        axes.set_xlabel("batch")
        _set_ticks(axes, [c.batch for c in gpu.configurations])
    panels[0].set_yscale("log")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:,.6g}"))
    panels[0].yaxis.set_minor_formatter(FuncFormatter(lambda ms, _: f"{ms:,.6g}"))
    panels[0].set_ylabel("ms for a batch")
    drawing.figure.legend(
        handles=[
            panels[0].plot([], [], "o-", color=colour, label=f"{percent} %")[0]
            for colour, percent in zip(SERIES, percents, strict=False)
        ],
        loc="outside right upper",
        title="GPU share",
    )
    return drawing.svg(name, label)


def spread(values: Iterable[int], limit: int) -> list[int]:
    """Return at most that many of the values, ascending: the ends, and evenly between them."""
    ordered = sorted(set(values))
    if len(ordered) <= limit:
        return ordered
    return [ordered[round(index * (len(ordered) - 1) / (limit - 1))] for index in range(limit)]


def _draw(drawing: Drawing, axes: Axes, line: list[ProfiledConfiguration], colour: str) -> None:
    axes.plot([c.batch for c in line], [c.latency_ms for c in line], color=colour, linewidth=1.4)
    for c in line:
        (mark,) = axes.plot(c.batch, c.latency_ms, "o", color=colour, markersize=4.0)
        p95 = "" if c.p95_ms is None else f", p95 {milliseconds(c.p95_ms)} ms"
        drawing.say(mark, f"{c}: {milliseconds(c.latency_ms)} ms{p95}")
        if c.p95_ms is not None:
            axes.plot([c.batch] * 2, [c.latency_ms, c.p95_ms], color=colour, linewidth=1.0)


def _set_ticks(axes: Axes, batches: Iterable[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(spread(batches, _TICKS_MAX)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda batch, _: f"{batch:,.0f}"))
