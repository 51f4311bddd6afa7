"""Figures of docs/paper.md as PNG: cost and hit rate of policies."""

from collections.abc import Sequence
from io import BytesIO
from math import ceil
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from workbench.reports.drawing import house_style
from workbench.reports.points import Panel

_WIDTH_IN = 9.0
_PANEL_IN = 2.2
_COLUMNS = 3
_ROOM_RATIO = 0.06  # of the span, below the lowest point and above 1
_SPAN_MIN = 0.01
_COARSE = 0.03  # from this span on, whole percent tell the ticks apart
_COLOURS = [f"C{i}" for i in range(8)]
_MARKERS = "osD"
PNG_STYLE: dict[Any, Any] = {
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "savefig.dpi": 110,
}


def positions_png(panels: Sequence[Panel], x_label: str, y_label: str) -> bytes:
    """Draw each point in the plane of its panel; ``y`` is a ratio, from the lowest one to 1."""
    rows = ceil(len(panels) / _COLUMNS)
    lowest = min((point.y for panel in panels for point in panel.points), default=0.0)
    room = _ROOM_RATIO * max(1.0 - lowest, _SPAN_MIN)
    names = list(dict.fromkeys(point.name for panel in panels for point in panel.points))
    styles = {
        name: (_COLOURS[i % len(_COLOURS)], _MARKERS[i // len(_COLOURS) % len(_MARKERS)])
        for i, name in enumerate(names)
    }
    with house_style(PNG_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, 0.5 + _PANEL_IN * rows), layout="constrained")
        grid = figure.subplots(rows, _COLUMNS, squeeze=False, sharex=True, sharey=True)
        for axes in grid.ravel()[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(grid.ravel(), panels, strict=False):
            axes.set_title(panel.title, loc="left")
            for point in panel.points:
                colour, marker = styles[point.name]
                axes.errorbar(
                    point.x,
                    point.y,
                    xerr=point.x_error or None,
                    yerr=point.y_error or None,
                    fmt=marker,
                    color=colour,
                    markersize=5.0,
                    elinewidth=1.0,
                )
            axes.yaxis.set_major_formatter(
                PercentFormatter(1.0, decimals=0 if 1.0 - lowest > _COARSE else None)
            )
            axes.set_ylim(lowest - room, 1.0 + room)
        for axes in grid[-1]:
            axes.set_xlabel(x_label)
        for row in grid:
            row[0].set_ylabel(y_label)
        handles = [
            Line2D([], [], color=colour, marker=marker, linestyle="none")
            for colour, marker in styles.values()
        ]
        figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6))
        return png(figure)


def png(figure: Figure) -> bytes:
    """Return a figure as PNG, without the program that wrote it."""
    written = BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()
