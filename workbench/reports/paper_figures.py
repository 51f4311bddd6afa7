"""The figures of docs/paper.md: where policies stand, and what each part of ESG is worth."""

from collections.abc import Sequence
from math import ceil

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from workbench.reports.drawing import FIRST, INK, SERIES, SOFT, Drawing
from workbench.reports.points import Panel, Point

_COLUMNS = 3
_PANEL_IN = 2.4
_ROW_IN = 0.23
_MARKERS = "osD"


def positions_figure(panels: Sequence[Panel], x_label: str, y_label: str, label: str) -> str:
    """Each point in the plane of its panel; ``y`` are parts of one."""
    rows = ceil(len(panels) / _COLUMNS)
    drawing = Drawing(0.5 + _PANEL_IN * rows)
    grid = drawing.figure.subplots(rows, _COLUMNS, squeeze=False, sharex=True, sharey=True)
    for axes in grid.ravel()[len(panels) :]:
        axes.set_visible(False)
    names = list(dict.fromkeys(point.name for panel in panels for point in panel.points))
    styles = {
        name: (SERIES[i % len(SERIES)], _MARKERS[i // len(SERIES) % len(_MARKERS)])
        for i, name in enumerate(names)
    }
    for axes, panel in zip(grid.ravel(), panels, strict=False):
        axes.set_title(panel.title, loc="left")
        for point in panel.points:
            _mark(drawing, axes, point, *styles[point.name])
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(-0.04, 1.06)
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    for row in grid:
        row[0].set_ylabel(y_label)
    shown = [
        Line2D([], [], color=colour, marker=marker, linestyle="none")
        for colour, marker in styles.values()
    ]
    drawing.figure.legend(shown, names, loc="outside lower center", ncols=min(len(names), 6))
    return drawing.svg("positions", label)


def differences_figure(panels: Sequence[Panel], x_label: str, label: str) -> str:
    """Each point's ``x`` on a row of its own, from 0; the panels beside one another."""
    names = [point.name for point in panels[0].points]
    drawing = Drawing(0.9 + _ROW_IN * len(names))
    (grid,) = drawing.figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(panel.title, loc="left")
        axes.axvline(0.0, color=SOFT, linewidth=1.0)
        for point in panel.points:
            row = names.index(point.name)
            (mark, *_) = axes.errorbar(
                point.x, row, xerr=point.x_error, fmt="o", color=FIRST, markersize=4.0
            )
            drawing.say(mark, f"{panel.title}, {point.name}: {point.x:+.1f} ± {point.x_error:.1f}")
        axes.set_xlabel(x_label)
    grid[0].set_yticks(range(len(names)), names)
    grid[0].set_ylim(len(names) - 0.5, -0.5)
    for axes in grid:
        axes.tick_params(axis="y", length=0, labelcolor=INK)
    return drawing.svg("differences", label)


def _mark(drawing: Drawing, axes: Axes, point: Point, colour: str, marker: str) -> None:
    (mark, *_) = axes.errorbar(
        point.x,
        point.y,
        xerr=point.x_error or None,
        yerr=point.y_error or None,
        fmt=marker,
        color=colour,
        markersize=5.0,
        elinewidth=1.0,
    )
    drawing.say(mark, f"{point.name}: {100 * point.y:.1f} %, ${point.x:.4f}")
