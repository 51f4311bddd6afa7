"""The tables of ``esg plan``: the candidates, and the best completion stage by stage."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scheduler.model.plan import Configuration
from scheduler.search.planned_stage import PlannedStage
from workbench.reports.numbers import dollars_per_1000, milliseconds

_PIPE_COLUMNS = 200  # where no terminal and no COLUMNS says how wide: nothing is cut
_UNBOUND = 10_000  # characters
_BETWEEN = 2  # characters between columns, and at both ends together
_WORD_MIN = 8  # characters of a name in a line
_PRICE = "$ per\n1,000\nrequests"


@dataclass(frozen=True, slots=True)
class _Column:
    """One column.

    Attributes:
        word: true for text, false for numbers.
        redundant: true if all cells are equal, or have the content of another column.
        remarked: true if their content is printed below a table without the column.
    """

    name: str
    cells: Sequence[str]
    word: bool = False
    redundant: bool = False
    remarked: bool = False

    @property
    def width(self) -> int:
        """Characters of its longest line."""
        return max(cell_len(line) for text in (self.name, *self.cells) for line in text.split("\n"))


def print_tables(planned: PlannedStage) -> None:
    """Both tables, and what else is to be known, on standard output."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    console = Console(file=sys.stdout, width=wide, highlight=False)
    title = f"{planned.workflow}, stage {planned.stage}: {_slack(planned)}"
    _print(console, title, _candidates(planned))
    _print(console, "The best completion, ms from now", _completion(planned), total=True)
    for remark in planned.remarks():
        console.print(Text(remark), soft_wrap=True)


def _slack(planned: PlannedStage) -> str:
    slack = f"{milliseconds(planned.slack_ms)} ms left"
    budget_ms = planned.plan.budget_ms
    if budget_ms is None or budget_ms == planned.slack_ms:
        return slack
    return f"{slack}, {milliseconds(budget_ms)} to plan for"


def _candidates(planned: PlannedStage) -> list[_Column]:
    candidates = planned.plan.candidates
    starts = [milliseconds(c.start_ms) for c in candidates]
    return [
        *_configuration_columns([c.configuration for c in candidates]),
        *([_Column("start ms", starts)] if len(planned.starts_ms) > 1 else []),
        _Column("stage ms", [milliseconds(c.stage_ms) for c in candidates]),
        _Column("path ms", [milliseconds(c.path_ms) for c in candidates]),
        _Column(_PRICE, [dollars_per_1000(c.path_cost_dollars) for c in candidates]),
        _models([c.gpu_model for c in candidates]),
    ]


def _completion(planned: PlannedStage) -> list[_Column]:
    completion = planned.completion
    runs = completion.runs
    budgets = [planned.budgets_ms[run.stage] for run in runs]
    same = all(run.stage == run.function for run in runs)
    shared = _configuration_columns([run.configuration for run in runs])
    return [
        _Column("stage", [*(run.stage for run in runs), "total"], word=True),
        _Column("function", [*(run.function for run in runs), ""], word=True, redundant=same),
        *(_Column(column.name, [*column.cells, ""]) for column in shared),
        _Column("from", [*(milliseconds(run.start_ms) for run in runs), ""]),
        _Column(
            "to", [*(milliseconds(run.end_ms) for run in runs), milliseconds(completion.path_ms)]
        ),
        # A stage's budget begins at the end of its last predecessor's.
        _Column(
            "budget\nfrom", [*(milliseconds(from_ms) for from_ms, _ in budgets), ""], redundant=True
        ),
        _Column(
            "budget\nto",
            [*(milliseconds(to_ms) for _, to_ms in budgets), milliseconds(planned.slack_ms)],
        ),
        _Column(
            _PRICE,
            [
                *(dollars_per_1000(run.cost_dollars) for run in runs),
                dollars_per_1000(completion.cost_dollars),
            ],
        ),
        _models([*(run.gpu_model for run in runs), ""]),
    ]


def _configuration_columns(configurations: Sequence[Configuration]) -> list[_Column]:
    return [
        _Column("batch", [str(c.batch) for c in configurations]),
        _Column("vCPU", [str(c.cpu) for c in configurations]),
        _Column("GPU %", [str(c.gpu_percent) for c in configurations]),
        _Column("MiB", [f"{c.memory_mib:,}" for c in configurations]),
    ]


def _models(names: Sequence[str]) -> _Column:
    redundant = len(set(names) - {""}) == 1
    return _Column("GPU model", names, word=True, redundant=redundant, remarked=redundant)


def _print(console: Console, title: str, columns: list[_Column], *, total: bool = False) -> None:
    """Print the table; on a narrow console, print redundant columns below it instead."""
    remarks = []
    if _width(columns, _UNBOUND) > console.width:
        remarks = [f"{column.name}: {column.cells[0]}" for column in columns if column.remarked]
        columns = [column for column in columns if not column.redundant]
        # Broken lines are better than truncated numbers.
        console.width = max(console.width, _width(columns, _WORD_MIN))
    console.print(Text(title, style="bold"))
    console.print(_table(columns, total=total))
    for line in remarks:
        console.print(Text(line), soft_wrap=True)


def _width(columns: Sequence[_Column], word_max: int) -> int:
    """Width of the table in characters, with names folded to ``word_max``."""
    return sum(min(c.width, word_max if c.word else _UNBOUND) + _BETWEEN for c in columns)


def _table(columns: Sequence[_Column], *, total: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "left" if column.word else "right"
        table.add_column(column.name, justify=justify, no_wrap=not column.word, overflow="fold")
    rows = list(zip(*(column.cells for column in columns), strict=True))
    for at, row in enumerate(rows):
        if total and at == len(rows) - 1:
            table.add_section()
        # As text, for the name of a GPU may look like markup.
        table.add_row(*map(Text, row))
    return table
