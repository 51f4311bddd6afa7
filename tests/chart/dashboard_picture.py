"""Picture of the dashboard, from the results of a real Prometheus that scraped the demo.

    python -m tests.chart.dashboard_picture    # called by `make dashboard-picture`; 5 minutes

It shows the time after the warm-up, in which the gateway creates the first pods. Matplotlib draws
it, not Grafana. Positions, titles, units and queries come from the dashboard.
"""

import io
import sys
import tempfile
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image

from tests.chart.dashboards import UNITS, Panel, panels
from tests.chart.prometheus_harness import PROMETHEUS, ScrapedDemo, Series, scraped_demo
from tests.chart.rendering import EVERYTHING, one, render
from tests.testbed import REPOSITORY

PICTURE = REPOSITORY / "docs" / "dashboard.png"
DPI = 72
WARM_UP_S = (
    90  # until the first pods are ready, and the counts of the time before have left the rates
)
SECONDS = 120
SCRAPED_EVERY_S = 1.0
STEP_S = 3.0
COLUMNS = 24  # of Grafana's grid
COLUMN_INCHES, ROW_INCHES = 0.75, 0.3
LEGEND_MAX = 6  # entries; sixteen nodes would fill a panel with the legend
NamedSeries = list[tuple[str, Series]]


def panel_series(scraped: ScrapedDemo, panel: Panel) -> NamedSeries:
    """Query all series of the panel, with their names in the legend."""
    return [
        (query.series_name(series.labels), series)
        for query in panel.queries
        for series in scraped.prometheus.query_range(
            query.promql(rate_interval_s=10 * scraped.scraped_every_s),
            start_s=scraped.start_s + WARM_UP_S,
            end_s=scraped.end_s,
            step_s=STEP_S,
        )
    ]


def draw(scraped: ScrapedDemo) -> Figure:
    """Draw the whole dashboard."""
    all_panels = panels()
    rows = max(panel.y + panel.height for panel in all_panels)
    figure = Figure(figsize=(COLUMNS * COLUMN_INCHES, rows * ROW_INCHES))
    for panel in all_panels:
        bottom = 1 - (panel.y + panel.height) / rows
        if not panel.queries:
            figure.text(0.01, bottom + 0.3 / rows, panel.title, fontsize=13, weight="bold")
            continue
        axes = figure.add_axes((
            (panel.x + 1.6) / COLUMNS,
            bottom + 1.5 / rows,
            (panel.width - 2.0) / COLUMNS,
            (panel.height - 2.8) / rows,
        ))  # fmt: skip
        axes.set_title(panel.title, fontsize=10, loc="left")
        named_series = panel_series(scraped, panel)
        if panel.kind == "timeseries" and named_series:
            _draw_lines(axes, panel, named_series, scraped.start_s + WARM_UP_S)
        else:
            _draw_text(axes, panel, named_series)
    return figure


def _draw_lines(axes: Axes, panel: Panel, named_series: NamedSeries, start_s: float) -> None:
    for name, series in named_series:
        seconds = [time_s - start_s for time_s, _ in series.points]
        values = [value for _, value in series.points]
        axes.plot(seconds, values, linewidth=1, label=name)
    highest = max(value for _, series in named_series for _, value in series.points)
    axes.set_ylim(0, 1.1 * highest or 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: UNITS[panel.unit](value)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    handles, names = axes.get_legend_handles_labels()
    if len(names) > LEGEND_MAX:
        names[LEGEND_MAX - 1] = f"… and {len(names) - LEGEND_MAX + 1} more"
    axes.legend(handles[:LEGEND_MAX], names[:LEGEND_MAX], fontsize=6, framealpha=0.6)


def _draw_text(axes: Axes, panel: Panel, named_series: NamedSeries) -> None:
    axes.set_axis_off()
    is_single = panel.kind == "stat" and len(named_series) == 1
    values = [
        UNITS[panel.unit](series.points[-1][1]) + (f"   {name}" if name and not is_single else "")
        for name, series in named_series
    ]
    text = "\n".join(values) or "no data"
    size = 26 if is_single else 13 if panel.kind == "stat" else 8
    axes.text(0.5, 0.5, text, fontsize=size, ha="center", va="center", wrap=True)


def main() -> int:
    """Run the demo, draw the dashboard and write the picture; return the exit status."""
    if PROMETHEUS is None:
        sys.stderr.write("error: prometheus is not installed: install the package prometheus\n")
        return 1
    with (
        tempfile.TemporaryDirectory() as folder,
        scraped_demo(
            Path(folder),
            seconds=WARM_UP_S + SECONDS,
            load="light",
            scraped_every_s=SCRAPED_EVERY_S,
            rules=one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"],
        ) as scraped,
    ):
        figure = draw(scraped)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI)
    # A palette of 256 colours makes the file four times smaller.
    palette = Image.open(png).convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE)
    palette.save(PICTURE, optimize=True)
    sys.stdout.write(f"{PICTURE.relative_to(REPOSITORY)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
