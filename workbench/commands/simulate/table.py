"""Table of ``esg simulate``: a row for each policy under each setting."""

from collections.abc import Sequence
from statistics import stdev

from rich.table import Table
from rich.text import Text

from workbench.commands.wide_table import print_fitting, print_rows, wide_table
from workbench.simulation.cost_split import PARTS, CostSplit
from workbench.simulation.runs.paired import PairedEstimate, PolicyDifference
from workbench.simulation.runs.summary import US_PER_S, Aggregate

_LEFT_ALIGNED = ("setting", "policy")
QUARTERS = 4
_COLUMNS = (
    *_LEFT_ALIGNED,
    "in SLO",
    "by quarter of\nthe run, %",
    "state",
    "p50\n/SLO",
    "p99\n/SLO",
    "set aside,\n$ per 1,000",
    "of it\nidle",
    "paid\n/ B0",
    "GPU\nfill",
    "cold\nstarts",
    "dispatches\na second",
    "planning\ns",
    "planning\nµs a call",
)
_DIFFERENCES = (*_LEFT_ALIGNED, "against, on the\nsame requests", "in SLO", "set aside")
# Columns that a narrow terminal leaves out, the first first.
_OPTIONAL = (
    "planning\nµs a call",
    "planning\ns",
    "dispatches\na second",
    "cold\nstarts",
    "by quarter of\nthe run, %",
    "GPU\nfill",
    "p50\n/SLO",
    "state",
    "p99\n/SLO",
)


def print_table(aggregates: Sequence[Aggregate]) -> None:
    """Print the table on standard output; ± is the standard deviation over seeds.

    "Set aside" is what containers held, so what is paid; B0 is the least cost of the same requests.
    """
    rows = [dict(zip(_COLUMNS, _row(series), strict=True)) for series in aggregates]

    def table_of(columns: Sequence[str]) -> Table:
        table = wide_table(columns, _LEFT_ALIGNED)
        for number, (series, row) in enumerate(zip(aggregates, rows, strict=True)):
            if number and aggregates[number - 1].setting != series.setting:
                table.add_section()
            table.add_row(*(Text(row[column]) for column in columns))
        return table

    print_fitting(table_of, _COLUMNS, _OPTIONAL)
    _print_splits(aggregates)


def _print_splits(aggregates: Sequence[Aggregate]) -> None:
    """Print the parts of what is paid, for policies that have a limit."""
    known = [(series, split) for series in aggregates if (split := series.split) is not None]
    if not known:
        return
    *paid, last = PARTS
    columns = [*_LEFT_ALIGNED, *paid, "paid", f"not paid:\n{last}"]
    rows = [
        dict(zip(columns, [series.setting, series.policy, *_sizes(split)], strict=True))
        for series, split in known
    ]

    def table_of(shown: Sequence[str]) -> Table:
        table = wide_table(shown, _LEFT_ALIGNED)
        table.title = "where the money goes, $ per 1,000 requests"
        for number, row in enumerate(rows):
            if number and rows[number - 1]["setting"] != row["setting"]:
                table.add_section()
            table.add_row(*(Text(row[column]) for column in shown))
        return table

    print_fitting(table_of, columns, [columns[-1], "unserved", "noise"])


def _sizes(split: CostSplit) -> list[str]:
    sizes = [size for _, size in split.parts()]
    return [f"{size:z.4f}" for size in (*sizes[:-1], split.paid, sizes[-1])]


def _row(series: Aggregate) -> list[str]:
    latency = series.latency
    calls = sum(result.planning_calls for result in series.results)
    planning_s = sum(result.planning_s for result in series.results)
    return [
        series.setting,
        series.policy,
        _spread([100 * ratio for ratio in series.hit_ratios], 1) + " %",
        " ".join(f"{100 * ratio:.0f}" for ratio in series.hit_ratios_over_time(QUARTERS)),
        series.state,
        f"{latency.quantile(0.5):.2f}",
        f"{latency.quantile(0.99):.2f}",
        _spread(series.dollars_per_thousand, 4),
        f"{100 * series.idle_ratio:.0f} %",
        "-" if series.paid_bound_ratio is None else f"{series.paid_bound_ratio:.2f}",
        f"{100 * series.mean('mean_utilisation_ratio'):.0f} %",
        f"{series.mean('cold_starts'):,.0f}",
        f"{series.mean('runs_per_s'):,.0f}",
        f"{planning_s / len(series.results):,.2f}",
        f"{US_PER_S * planning_s / calls:,.0f}" if calls else "-",
    ]


def _spread(values: Sequence[float], digits: int) -> str:
    mean = sum(values) / len(values)
    text = f"{mean:,.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {stdev(values):,.{digits}f}"


def print_differences(differences: Sequence[PolicyDifference]) -> None:
    """Print a row for each policy that is compared with the first one; ± is half of an interval."""
    table = wide_table(_DIFFERENCES, _LEFT_ALIGNED)
    for one in differences:
        hits = _interval(one.hit_points, " points")
        table.add_row(one.setting, one.policy, one.against, hits, _interval(one.cost_excess, " %"))
    print_rows(table)


def _interval(estimate: PairedEstimate, unit: str) -> str:
    text = f"{100 * estimate.mean:+z.1f}"
    if estimate.half_width is not None:
        text += f" ± {100 * estimate.half_width:.1f}"
    return text + unit
