"""Waterfall plots of costs: parts end to end, from the least cost to what is paid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from workbench.reports.drawing import house_style
from workbench.reports.paper_figures import PNG_STYLE, png
from workbench.reports.points import Waterfall

_WIDTH_IN = 9.0
_ROW_IN = 0.24
_HEAD_IN = 0.75  # height above and below the rows
_NEGATIVE_ALPHA = 0.4
_TEXT_RATIO = 0.1  # of the axis: an outline of this width has room for the sum
Say = Callable[[Artist, str], None]


def draw_waterfalls(
    axes: Axes,
    rows: Sequence[Waterfall],
    colours: Mapping[str, str],
    *,
    ink: str,
    say: Say = lambda _artist, _text: None,
) -> None:
    """Draw a row for each cost, the first above.

    A negative part is pale, over what it takes back. A line with the sum ends what is paid; the
    last part, behind it, is an outline.

    Args:
        axes: axes to draw in.
        rows: costs.
        colours: colour of each part.
        ink: colour of lines and text.
        say: function that gets each bar with its description.
    """
    axis_max = 1.12 * max(max(row.paid, row.paid + row.parts[-1][1]) for row in rows)
    for place, row in enumerate(rows):
        end = 0.0
        for name, size in row.parts[:-1]:
            (bar,) = axes.barh(place, size, 0.7, end, color=colours[name])
            if size < 0.0:
                bar.set_alpha(_NEGATIVE_ALPHA)
            say(bar, f"{row.name}: {name} {size:.3f}")
            end += size
        name, size = row.parts[-1]
        (bar,) = axes.barh(place, size, 0.7, end, facecolor="none", edgecolor=colours[name])
        say(bar, f"{row.name}: {name} {size:.3f}")
        axes.plot([end, end], [place - 0.45, place + 0.45], color=ink, linewidth=2.0)
        is_within = size > _TEXT_RATIO * axis_max
        place_x = end if is_within else max(end, end + size)
        axes.text(place_x, place, f" {end:.2f}", va="center", color=ink)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0.0, axis_max)


def legend_of(figure: Figure, colours: Mapping[str, str]) -> None:
    """Add the names of the parts below the figure; the last one is an outline."""
    *paid, last = colours
    handles = [Patch(color=colours[name]) for name in paid]
    handles.append(Patch(facecolor="none", edgecolor=colours[last]))
    figure.legend(handles, list(colours), loc="outside lower center", ncols=len(colours))


def waterfalls_png(panels: Mapping[str, Sequence[Waterfall]], x_label: str) -> bytes:
    """Draw the rows of each panel, under its title, as PNG."""
    names = [name for rows in panels.values() for row in rows for name, _ in row.parts]
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(names))}
    style: dict[Any, Any] = {**PNG_STYLE, "font.size": 9.0}
    counts = [len(rows) for rows in panels.values()]
    with house_style(style):
        height_in = 0.4 + sum(_HEAD_IN + _ROW_IN * count for count in counts)
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=counts)
        ends: list[float] = []
        for (axes,), (title, rows) in zip(grid, panels.items(), strict=True):
            draw_waterfalls(axes, rows, colours, ink="black")
            axes.set_title(title, loc="left")
            ends.append(axes.get_xlim()[1])
        grid[0][0].set_xlim(0.0, max(ends))
        grid[-1][0].set_xlabel(x_label)
        legend_of(figure, colours)
        return png(figure)
