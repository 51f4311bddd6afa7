"""Terminal tables that are not cut when they are written to a file."""

import os
import sys
from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

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
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    Console(file=sys.stdout, width=wide, highlight=False).print(table)
