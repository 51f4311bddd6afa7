"""The four figures of a simulation's page, a panel for each setting in each of them."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from workbench.reports.drawing import FIRST, INK, SECOND, SERIES, SOFT, Drawing
from workbench.reports.numbers import milliseconds
from workbench.reports.simulated import PHASES, Comparison, SimulatedPolicy, deviation

_BAR_IN = 0.26  # height of a policy's row
_HEAD_IN = 0.75  # of what stands above and below the rows
_PANEL_IN = 2.5
_PANELS_MAX = 3  # beside one another
_LATENCY_LEAST, _LATENCY_MOST = 1.25, 3.0  # SLOs; the axis ends between them
_Dashes = tuple[float, Sequence[float]] | None
_DASHES: tuple[_Dashes, ...] = (None, (0, (5, 2)), (0, (1.5, 1.5)))
_NAME_MAX = 24  # characters


def rates_figure(compared: Comparison, label: str) -> str:
    """Hit rate and cost of each policy."""
    settings = compared.settings
    rows = [len(compared.under(setting)) for setting in settings]
    drawing = Drawing(sum(_HEAD_IN + _BAR_IN * count for count in rows))
    grid = drawing.figure.subplots(len(settings), 2, squeeze=False, height_ratios=rows)
    dearest = max((each.cost_per_1000 for each in compared.policies), default=0.0) or 1.0
    for (hits, costs), setting in zip(grid, settings, strict=True):
        found = compared.under(setting)
        _bars(drawing, hits, found, FIRST, _hits)
        _bars(drawing, costs, found, SECOND, _costs)
        hits.set_title(setting, loc="left")
        hits.set_xlim(0, 1.16)
        hits.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        hits.xaxis.set_major_formatter(PercentFormatter(1.0))
        costs.set_xlim(0, 1.2 * dearest)
        costs.tick_params(labelleft=False)
    grid[-1][0].set_xlabel("requests within their SLO")
    grid[-1][1].set_xlabel("$ per 1,000 requests")
    return drawing.svg("rates", label)


def latencies_figure(compared: Comparison, label: str) -> str:
    """The part of all requests that end within so many SLOs."""
    drawing, panels = _panels(compared)
    for axes, found in panels:
        beyond = [_reached(each.latencies, 0.99) for each in found]
        most = min(max([_LATENCY_LEAST, *beyond]), _LATENCY_MOST)
        for each in found:
            points = [(0.0, 0.0), *each.latencies, (most, each.latencies[-1][1])]
            _line(drawing, axes, compared, each.policy, points, "steps-post")
        axes.axvline(1.0, color=SOFT, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_xlim(0, most)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel("latency over SLO")
    _legend(drawing, compared)
    return drawing.svg("latencies", label)


def fill_figure(compared: Comparison, label: str) -> str:
    """How much of the GPUs is held over time."""
    drawing, panels = _panels(compared)
    for axes, found in panels:
        for each in found:
            _line(drawing, axes, compared, each.policy, each.fill, "default")
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(_grouped))
        axes.set_xlabel("s of the virtual clock")
    _legend(drawing, compared)
    return drawing.svg("fill", label)


def missed_figure(compared: Comparison, label: str) -> str:
    """Where the time of a missed request went."""
    settings = compared.settings
    rows = [len(compared.under(setting)) for setting in settings]
    drawing = Drawing(0.3 + sum(_HEAD_IN + _BAR_IN * count for count in rows))
    grid = drawing.figure.subplots(len(settings), 1, squeeze=False, height_ratios=rows)
    for (axes,), setting in zip(grid, settings, strict=True):
        found = compared.under(setting)
        for row, each in enumerate(found):
            from_ms = 0.0
            for phase, phase_ms, colour in zip(PHASES, each.missed_ms, SERIES, strict=False):
                (bar,) = axes.barh(row, phase_ms, 0.7, from_ms, color=colour)
                told = f"{phase} {milliseconds(phase_ms)} ms"
                drawing.say(bar, f"{each.policy}, {setting}: {told}")
                from_ms += phase_ms
            told = f" {each.misses:,} missed" if each.misses else " none missed"
            axes.text(from_ms, row, told, va="center", color=SOFT)
        _set_rows(axes, found)
        axes.set_title(setting, loc="left")
        longest_ms = max(sum(each.missed_ms) for each in found)
        axes.set_xlim(0, 1.2 * longest_ms or 1.0)
        axes.xaxis.set_major_formatter(FuncFormatter(_grouped))
    grid[-1][0].set_xlabel("ms of a missed request, in the mean")
    parts = [Line2D([], [], color=colour, linewidth=6) for colour in SERIES[: len(PHASES)]]
    drawing.figure.legend(parts, PHASES, loc="outside lower center", ncols=len(PHASES))
    return drawing.svg("missed", label)


# -- bars


class _Bar(NamedTuple):
    value: float
    seeds: Sequence[float]  # the values from each seed
    told: str
    of_what: str


def _hits(each: SimulatedPolicy) -> _Bar:
    told = f"{100 * each.hit_ratio:.1f} %"
    return _Bar(each.hit_ratio, each.hit_ratios, told, f"of {each.requests:,} in SLO")


def _costs(each: SimulatedPolicy) -> _Bar:
    told = f"${each.cost_per_1000:.4f}"
    return _Bar(each.cost_per_1000, each.costs_per_1000, told, "per 1,000 requests")


def _bars(
    drawing: Drawing,
    axes: Axes,
    found: Sequence[SimulatedPolicy],
    colour: str,
    bar_of: Callable[[SimulatedPolicy], _Bar],
) -> None:
    for row, each in enumerate(found):
        value, seeds, told, of_what = bar_of(each)
        spread = deviation(seeds)
        (bar,) = axes.barh(row, value, 0.7, color=colour, xerr=spread, ecolor=INK)
        drawing.say(bar, f"{each.policy}, {each.setting}: {told} {of_what}")
        axes.text(value + (spread or 0.0), row, f" {told}", va="center", color=INK)
    _set_rows(axes, found)


def _set_rows(axes: Axes, found: Sequence[SimulatedPolicy]) -> None:
    axes.set_yticks(range(len(found)), [_short(each.policy) for each in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


# -- lines


def _panels(compared: Comparison) -> tuple[Drawing, list[tuple[Axes, list[SimulatedPolicy]]]]:
    """A drawing with a panel for each setting, and for each panel what is in it."""
    settings = compared.settings
    columns = min(len(settings), _PANELS_MAX)
    rows = ceil(len(settings) / columns)
    drawing = Drawing(0.4 + _PANEL_IN * rows)
    grid = drawing.figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in grid[len(settings) :]:
        axes.set_visible(False)
    panels = []
    for axes, setting in zip(grid, settings, strict=False):
        axes.set_title(setting, loc="left")
        panels.append((axes, compared.under(setting)))
    return drawing, panels


def _line(  # noqa: PLR0913, PLR0917 - a line, and where it belongs
    drawing: Drawing,
    axes: Axes,
    compared: Comparison,
    policy: str,
    points: Sequence[tuple[float, float]],
    steps: str,
) -> None:
    colour, dashes = _style(compared, policy)
    (line,) = axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=colour,
        linestyle=dashes,
        linewidth=1.5,
        drawstyle=steps,
    )
    drawing.say(line, policy)


def _style(compared: Comparison, policy: str) -> tuple[str, _Dashes]:
    """The same for a policy in every panel; colours first, then dashes."""
    number = compared.names.index(policy)
    dashes = _DASHES[number // len(SERIES) % len(_DASHES)]
    return SERIES[number % len(SERIES)], dashes


def _legend(drawing: Drawing, compared: Comparison) -> None:
    styles = [_style(compared, policy) for policy in compared.names]
    lines = [Line2D([], [], color=c, linestyle=d, linewidth=1.8) for c, d in styles]
    names = [_short(name) for name in compared.names]
    drawing.figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 6))


def _reached(latencies: Sequence[tuple[float, float]], part: float) -> float:
    """The latency over SLO that so many of those that end keep."""
    wanted = part * latencies[-1][1]
    return next(latency for latency, kept in latencies if kept >= wanted)


def _grouped(value: float, _: float | None) -> str:
    return f"{value:,.6g}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"
