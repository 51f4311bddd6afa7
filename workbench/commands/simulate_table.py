"""The table of ``esg simulate``: a row for each policy under each setting."""

import os
import sys
from collections.abc import Sequence
from statistics import stdev
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from workbench.simulation.runs.summary import US_PER_S, Together

_PIPE_COLUMNS = 200  # where no terminal and no COLUMNS says how wide: nothing is cut
_WORDS = ("setting", "policy")
_COLUMNS = (
    *_WORDS,
    "in SLO",
    "p50\n/SLO",
    "p99\n/SLO",
    "$ per 1,000\nrequests",
    "GPU\nfill",
    "cold\nstarts",
    "dispatches\na second",
    "planning\ns",
    "planning\nµs a call",
)


def print_table(found: Sequence[Together]) -> None:
    """The table on standard output; ± is the standard deviation over seeds."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    console = Console(file=sys.stdout, width=wide, highlight=False)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in _COLUMNS:
        justify: Literal["left", "right"] = "left" if column in _WORDS else "right"
        table.add_column(column, justify=justify, no_wrap=column not in _WORDS, overflow="fold")
    for at, each in enumerate(found):
        if at and found[at - 1].setting != each.setting:
            table.add_section()
        table.add_row(*map(Text, _row(each)))
    console.print(table)


def _row(each: Together) -> list[str]:
    latency = each.latency
    calls = sum(result.planning_calls for result in each.results)
    planning_s = sum(result.planning_s for result in each.results)
    return [
        each.setting,
        each.policy,
        _spread([100 * ratio for ratio in each.hit_ratios], 1) + " %",
        f"{latency.quantile(0.5):.2f}",
        f"{latency.quantile(0.99):.2f}",
        _spread(each.costs_per_1000, 4),
        f"{100 * each.mean('gpu_fill_mean'):.0f} %",
        f"{each.mean('cold_starts'):,.0f}",
        f"{each.mean('runs_per_s'):,.0f}",
        f"{planning_s / len(each.results):,.2f}",
        f"{US_PER_S * planning_s / calls:,.0f}" if calls else "-",
    ]


def _spread(values: Sequence[float], digits: int) -> str:
    mean = sum(values) / len(values)
    told = f"{mean:,.{digits}f}"
    return told if len(values) == 1 else f"{told} ± {stdev(values):,.{digits}f}"
