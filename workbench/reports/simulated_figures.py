"""Figures of a simulation's page, with one panel per setting."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from workbench.reports.drawing import FIRST, INK, SECOND, SERIES, SOFT, Drawing
from workbench.reports.numbers import milliseconds
from workbench.reports.simulated import PHASES, Comparison, SimulatedPolicy, seed_sigma
from workbench.reports.waterfall import draw_waterfalls, legend_of

_BAR_IN = 0.26  # height of a policy's row
_HEAD_IN = 0.75  # height above and below the rows
_PANEL_IN = 2.5
_PANELS_MAX = 3  # in a row
_LATENCY_AXIS_MIN, _LATENCY_AXIS_MAX = 1.25, 3.0  # SLOs; the axis ends between them
_Dashes = tuple[float, Sequence[float]] | None
_DASHES: tuple[_Dashes, ...] = (None, (0, (5, 2)), (0, (1.5, 1.5)))
_NAME_MAX = 24  # characters


def rates_figure(comparison: Comparison, label: str) -> str:
    """Draw hit rate and cost of each policy."""
    settings = comparison.settings
    rows = [len(comparison.under(setting)) for setting in settings]
    drawing = Drawing(sum(_HEAD_IN + _BAR_IN * count for count in rows))
    grid = drawing.figure.subplots(len(settings), 2, squeeze=False, height_ratios=rows)
    dearest = (
        max((policy.cost_dollars_per_thousand for policy in comparison.policies), default=0.0)
        or 1.0
    )
    for (hits, costs), setting in zip(grid, settings, strict=True):
        policies = comparison.under(setting)
        _bars(drawing, hits, policies, FIRST, _hits)
        _bars(drawing, costs, policies, SECOND, _costs)
        hits.set_title(setting, loc="left")
        hits.set_xlim(0, 1.16)
        hits.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        hits.xaxis.set_major_formatter(PercentFormatter(1.0))
        costs.set_xlim(0, 1.2 * dearest)
        costs.tick_params(labelleft=False)
    grid[-1][0].set_xlabel("requests within their SLO")
    grid[-1][1].set_xlabel("$ paid per 1,000 requests")
    return drawing.svg("rates", label)


def split_figure(comparison: Comparison, label: str) -> str:
    """Draw the parts of what is paid; empty if no policy has a limit."""
    known = {
        setting: [policy.split for policy in comparison.under(setting) if policy.split]
        for setting in comparison.settings
    }
    known = {setting: rows for setting, rows in known.items() if rows}
    if not known:
        return ""
    counts = [len(rows) for rows in known.values()]
    drawing = Drawing(0.3 + sum(_HEAD_IN + _BAR_IN * count for count in counts))
    grid = drawing.figure.subplots(len(known), 1, squeeze=False, height_ratios=counts)
    names = [name for name, _ in next(iter(known.values()))[0].parts]
    colours = dict(zip(names, SERIES, strict=True))
    for (axes,), (setting, rows) in zip(grid, known.items(), strict=True):
        draw_waterfalls(axes, rows, colours, ink=INK, say=drawing.say)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_title(setting, loc="left")
    grid[-1][0].set_xlabel("paid over the limit B0")
    legend_of(drawing.figure, colours)
    return drawing.svg("split", label)


def latencies_figure(comparison: Comparison, label: str) -> str:
    """Draw the fraction of requests over latency divided by SLO."""
    drawing, panels = _panels(comparison)
    for axes, policies in panels:
        beyond = [_quantile(policy.latencies, 0.99) for policy in policies]
        axis_max = min(max([_LATENCY_AXIS_MIN, *beyond]), _LATENCY_AXIS_MAX)
        for policy in policies:
            points = [(0.0, 0.0), *policy.latencies, (axis_max, policy.latencies[-1][1])]
            _line(drawing, axes, comparison, policy.name, points, "steps-post")
        axes.axvline(1.0, color=SOFT, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_xlim(0, axis_max)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel("latency over SLO")
    _legend(drawing, comparison)
    return drawing.svg("latencies", label)


def hits_figure(comparison: Comparison, label: str) -> str:
    """Draw the hit rate over the time of arrival."""
    return _over_time(comparison, "hits", label, lambda policy: policy.hits_over_time)


def fill_figure(comparison: Comparison, label: str) -> str:
    """Draw the reserved fraction of the GPUs over time."""
    return _over_time(comparison, "fill", label, lambda policy: policy.utilisation)


def missed_figure(comparison: Comparison, label: str) -> str:
    """Draw the phases of a missed request."""
    settings = comparison.settings
    rows = [len(comparison.under(setting)) for setting in settings]
    drawing = Drawing(0.3 + sum(_HEAD_IN + _BAR_IN * count for count in rows))
    grid = drawing.figure.subplots(len(settings), 1, squeeze=False, height_ratios=rows)
    for (axes,), setting in zip(grid, settings, strict=True):
        policies = comparison.under(setting)
        for row, policy in enumerate(policies):
            from_ms = 0.0
            for phase, phase_ms, colour in zip(PHASES, policy.missed_ms, SERIES, strict=False):
                (bar,) = axes.barh(row, phase_ms, 0.7, from_ms, color=colour)
                text = f"{phase} {milliseconds(phase_ms)} ms"
                drawing.say(bar, f"{policy.name}, {setting}: {text}")
                from_ms += phase_ms
            text = f" {policy.misses:,} missed" if policy.misses else " none missed"
            axes.text(from_ms, row, text, va="center", color=SOFT)
        _set_rows(axes, policies)
        axes.set_title(setting, loc="left")
        longest_ms = max(sum(policy.missed_ms) for policy in policies)
        axes.set_xlim(0, 1.2 * longest_ms or 1.0)
        axes.xaxis.set_major_formatter(FuncFormatter(_grouped))
    grid[-1][0].set_xlabel("mean time of a missed request, ms")
    parts = [Line2D([], [], color=colour, linewidth=6) for colour in SERIES[: len(PHASES)]]
    drawing.figure.legend(parts, PHASES, loc="outside lower center", ncols=len(PHASES))
    return drawing.svg("missed", label)


# -- bars


class _Bar(NamedTuple):
    value: float
    seeds: Sequence[float]  # the values of each seed
    text: str
    unit: str


def _hits(policy: SimulatedPolicy) -> _Bar:
    text = f"{100 * policy.hit_ratio:.1f} %"
    return _Bar(policy.hit_ratio, policy.hit_ratios, text, f"of {policy.requests:,} in SLO")


def _costs(policy: SimulatedPolicy) -> _Bar:
    text = f"${policy.cost_dollars_per_thousand:.4f}"
    return _Bar(
        policy.cost_dollars_per_thousand,
        policy.costs_dollars_per_thousand,
        text,
        "paid per 1,000 requests",
    )


def _bars(
    drawing: Drawing,
    axes: Axes,
    policies: Sequence[SimulatedPolicy],
    colour: str,
    bar_of: Callable[[SimulatedPolicy], _Bar],
) -> None:
    for row, policy in enumerate(policies):
        value, seeds, text, unit = bar_of(policy)
        spread = seed_sigma(seeds)
        (bar,) = axes.barh(row, value, 0.7, color=colour, xerr=spread, ecolor=INK)
        drawing.say(bar, f"{policy.name}, {policy.setting}: {text} {unit}")
        axes.text(value + (spread or 0.0), row, f" {text}", va="center", color=INK)
    _set_rows(axes, policies)


def _set_rows(axes: Axes, policies: Sequence[SimulatedPolicy]) -> None:
    axes.set_yticks(range(len(policies)), [_short(policy.name) for policy in policies])
    axes.set_ylim(len(policies) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


# -- lines


def _over_time(
    comparison: Comparison,
    name: str,
    label: str,
    points_of: Callable[[SimulatedPolicy], Sequence[tuple[float, float]]],
) -> str:
    """Draw a ratio of each policy over virtual time."""
    drawing, panels = _panels(comparison)
    for axes, policies in panels:
        for policy in policies:
            _line(drawing, axes, comparison, policy.name, points_of(policy), "default")
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(_grouped))
        axes.set_xlabel("virtual time, s")
    _legend(drawing, comparison)
    return drawing.svg(name, label)


def _panels(comparison: Comparison) -> tuple[Drawing, list[tuple[Axes, list[SimulatedPolicy]]]]:
    """Create a drawing with a panel per setting; return the panels with their policies."""
    settings = comparison.settings
    columns = min(len(settings), _PANELS_MAX)
    rows = ceil(len(settings) / columns)
    drawing = Drawing(0.4 + _PANEL_IN * rows)
    grid = drawing.figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in grid[len(settings) :]:
        axes.set_visible(False)
    panels = []
    for axes, setting in zip(grid, settings, strict=False):
        axes.set_title(setting, loc="left")
        panels.append((axes, comparison.under(setting)))
    return drawing, panels


def _line(  # noqa: PLR0913, PLR0917 - a line and its place
    drawing: Drawing,
    axes: Axes,
    comparison: Comparison,
    policy: str,
    points: Sequence[tuple[float, float]],
    steps: str,
) -> None:
    colour, dashes = _style(comparison, policy)
    (line,) = axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=colour,
        linestyle=dashes,
        linewidth=1.5,
        drawstyle=steps,
    )
    drawing.say(line, policy)


def _style(comparison: Comparison, policy: str) -> tuple[str, _Dashes]:
    """Style of a policy in every panel; colours first, then dashes."""
    number = comparison.names.index(policy)
    dashes = _DASHES[number // len(SERIES) % len(_DASHES)]
    return SERIES[number % len(SERIES)], dashes


def _legend(drawing: Drawing, comparison: Comparison) -> None:
    styles = [_style(comparison, policy) for policy in comparison.names]
    lines = [Line2D([], [], color=c, linestyle=d, linewidth=1.8) for c, d in styles]
    names = [_short(name) for name in comparison.names]
    drawing.figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 6))


def _quantile(latencies: Sequence[tuple[float, float]], quantile: float) -> float:
    """Latency divided by SLO that this fraction of the finished requests does not exceed."""
    target_ratio = quantile * latencies[-1][1]
    return next(latency for latency, ratio in latencies if ratio >= target_ratio)


def _grouped(value: float, _: float | None) -> str:
    return f"{value:,.6g}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"
