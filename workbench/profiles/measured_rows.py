"""The rows of a CSV that an import asks for, each field of a measurement still as text.

Problems name the options of ``esg profiles import``: what is asked for comes from there.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.model.documents import ProfiledConfiguration
from scheduler.model.quoting import listed, quoted
from scheduler.model.reading import DocumentError, Problem

_MEASURED = ProfiledConfiguration.model_fields
FIELDS = ("function", *_MEASURED)
REQUIRED = ("function", *(name for name, info in _MEASURED.items() if info.is_required()))

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_COLUMNS_SHOWN_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of a CSV are meant, and where each of FIELDS is in them.

    Attributes:
        columns: field to the column that holds it, where the column has another name.
        constants: field to the value that all rows have, as text, where there is no column.
        where: (column, value) pairs that a row must have; numbers are compared as numbers.
        only: functions, by their name in the CSV or in the document; empty: all.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    where: Sequence[tuple[str, str]] = ()
    only: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Row:
    """One row that was asked for: where it stands, and the text of its fields."""

    place: str  # "line 7"
    texts: Mapping[str, str]

    @property
    def function(self) -> str:
        """The function's name as the CSV has it."""
        return self.texts["function"]


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """The rows that were asked for, at least one, and what is needed to tell of them.

    Attributes:
        source: the path of the CSV.
        rows: in the order of the CSV.
        total: how many rows the CSV has.
        columns: field to its column.
        constants: field to the text that all rows have.
    """

    source: str
    rows: tuple[Row, ...]
    total: int
    columns: Mapping[str, str]
    constants: Mapping[str, str]

    def problem(self, place: str, name: str, message: str) -> Problem:
        """What is wrong with a field there, told by its column or by the option that set it."""
        if name in self.constants:
            return Problem(self.source, f"--set {name}={self.constants[name]}", "", message)
        return Problem(self.source, place, f"column {self.columns[name]}", message)


def read_rows(text: str, source: str, selection: Selection) -> MeasuredRows:
    """The rows of the CSV ``text`` that are asked for; ``source`` is its path.

    Raises:
        DocumentError: it is no CSV, what is asked for does not fit it, or no row is left.
    """
    header, lines = _table(text, source)
    columns = {name: name for name in FIELDS if name in header} | dict(selection.columns)
    problems = [
        Problem(source, place, "", message)
        for place, message in (
            *_wrong_fields(columns, selection),
            *_missing_columns(header, columns, selection),
        )
    ]
    if problems:
        raise DocumentError(problems)
    constants = dict(selection.constants)
    rows = [
        Row(place, {name: cells[column] for name, column in columns.items()} | constants)
        for place, cells in lines
        if all(_equal(cells[column], value) for column, value in selection.where)
    ]
    if not rows:
        options = " ".join(f"--where {column}={value}" for column, value in selection.where)
        message = f"none of its {len(lines):,} rows has it; mend the value, or ask for less"
        raise DocumentError([Problem(source, options, "", message)])
    chosen = _of_functions(rows, selection.only, source)
    return MeasuredRows(source, tuple(chosen), len(lines), columns, constants)


def label(function: str) -> str:
    """The name in lower-case letters, digits and '-', which neither begins nor ends it."""
    return re.sub("[^a-z0-9]", "-", function.lower()).strip("-")


def number(text: str) -> float | None:
    """The number that the text is; None where it is none. Infinity and NaN are none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def _table(text: str, source: str) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """The columns; and of each row its place and its cells by column."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = [
            (f"line {reader.line_num}", [cell.strip() for cell in cells])
            for cells in reader
            if cells  # an empty line has none
        ]
    except csv.Error as error:
        problem = Problem(source, f"line {reader.line_num}", "", f"is no CSV: {error}")
        raise DocumentError([problem]) from None
    if not lines:
        message = "is empty; its first line must name the columns"
        raise DocumentError([Problem(source, "the file", "", message)])
    (_, header), *lines = lines
    problems = [
        Problem(source, "the columns", "", f"{quoted(name)} is there {count} times; rename one")
        for name, count in Counter(header).items()
        if name and count > 1
    ]
    problems += [
        Problem(source, place, "", f"has {len(cells)} values for {len(header)} columns")
        for place, cells in lines
        if len(cells) != len(header)
    ]
    if not lines:
        problems.append(Problem(source, "the file", "", "has no row below the columns' names"))
    if problems:
        raise DocumentError(problems)
    return header, [(place, dict(zip(header, cells, strict=True))) for place, cells in lines]


def _wrong_fields(columns: Mapping[str, str], selection: Selection) -> list[tuple[str, str]]:
    """(place, message) of each option for a field that there is not, or that is there twice."""
    known = f"fields are {', '.join(FIELDS)}"
    wrong = [
        (f"{option} {name}={value}", f"{quoted(name)} is no field; {known}")
        for option, given in (("--map", selection.columns), ("--set", selection.constants))
        for name, value in given.items()
        if name not in FIELDS
    ]
    wrong += [
        (f"--set {name}={value}", f"the column {quoted(columns[name])} has it; take one away")
        for name, value in selection.constants.items()
        if name in columns
    ]
    return wrong


def _missing_columns(
    header: list[str], columns: Mapping[str, str], selection: Selection
) -> list[tuple[str, str]]:
    """(place, message) of each column that is asked for, or needed, and not there."""
    shown = listed([quoted(name) for name in header], limit=_COLUMNS_SHOWN_MAX)
    asked = [(f"--map {name}={column}", column) for name, column in selection.columns.items()]
    asked += [(f"--where {column}={value}", column) for column, value in selection.where]
    missing = [
        (option, f"there is no column {quoted(column)}; the columns are {shown}")
        for option, column in asked
        if column not in header
    ]
    absent = [n for n in REQUIRED if n not in columns and n not in selection.constants]
    if absent:
        remedy = " ".join(f"--map {name}=COLUMN" for name in absent)
        message = (
            f"none for {', '.join(absent)}; there are {shown}; write {remedy}, "
            "or --set FIELD=VALUE where all rows have the same"
        )
        missing.append(("the columns", message))
    return missing


def _of_functions(rows: list[Row], only: frozenset[str], source: str) -> list[Row]:
    """The rows of these functions; of all where there are none."""
    if not only:
        return rows
    labels = {function: label(function) for function in {row.function for row in rows}}
    known = listed(sorted(labels))
    unknown = sorted(only - labels.keys() - set(labels.values()))
    if unknown:
        message = f"no row is of that function; functions are {known}"
        raise DocumentError(Problem(source, f"--only {name}", "", message) for name in unknown)
    wanted = {function for function in labels if {function, labels[function]} & only}
    return [row for row in rows if row.function in wanted]


def _equal(cell: str, value: str) -> bool:
    if cell == value:
        return True
    cell_number = number(cell)
    return cell_number is not None and cell_number == number(value)
