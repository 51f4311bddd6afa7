"""Terminal tables that are not cut when they are written to a file."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from scheduler.model.message_text import listed

_UNBOUNDED_COLUMNS = 10_000
_PIPE_COLUMNS = 200  # without a terminal and COLUMNS: nothing is cut


def wide_table(columns: Sequence[str], names: Sequence[str]) -> Table:
    """Return an empty table; ``names`` are the columns that are aligned left and may wrap."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "left" if column in names else "right"
        table.add_column(column, justify=justify, no_wrap=column not in names, overflow="fold")
    return table


def print_rows(table: Table) -> None:
    """Print a table on standard output."""
    _console().print(table)


def print_fitting(
    table_of: Callable[[Sequence[str]], Table], columns: Sequence[str], optional: Sequence[str]
) -> None:
    """Print a table on standard output with as many columns as the terminal is wide enough for.

    Args:
        table_of: function that returns the table of some columns.
        columns: all columns.
        optional: columns that may be left out, the least important first; standard error names
            those that are.
    """
    console = _console()
    unbounded = console.options.update(max_width=_UNBOUNDED_COLUMNS)
    omitted: list[str] = []
    table = table_of(columns)
    for column in optional:
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            break
        omitted.append(column)
        table = table_of([column for column in columns if column not in omitted])
    console.print(table)
    if omitted:
        names = listed([column.replace("\n", " ") for column in omitted])
        message = f"{console.width} columns are too few for {names}; set COLUMNS, or use --json"
        sys.stderr.write(f"{message}\n")


def _console() -> Console:
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    return Console(file=sys.stdout, width=wide, highlight=False)
