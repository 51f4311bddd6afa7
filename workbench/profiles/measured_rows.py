"""Rows of a measurement CSV, each field still as text.

Problems name the options of ``esg profiles import`` that describe the CSV.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.documents import ProfiledConfiguration
from scheduler.model.message_text import listed, quoted
from workbench.profiles.latency_units import Unit, to_ms, unit_of

_MEASURED = ProfiledConfiguration.model_fields
FIELDS = ("function", *_MEASURED)
REQUIRED = ("function", *(name for name, info in _MEASURED.items() if info.is_required()))

LATENCIES = ("latency_ms", "p95_ms")
_COLUMNS_SHOWN_MAX = 30
_OTHER_SEPARATORS = (";", "\t")  # of spreadsheets where decimals have commas


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvLayout:
    """Columns of FIELDS in a CSV.

    Attributes:
        columns: column of each field, if it has another name.
        constants: text of each field that has no column, for all rows.
        latency_unit: unit of the latencies; None: by the names of their columns.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    latency_unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its place, and the text of its fields."""

    place: str  # "line 7"
    texts: Mapping[str, str]

    @property
    def function(self) -> str:
        """Name of the function in the CSV."""
        return self.texts["function"]


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """All rows of a CSV, at least one, and what error messages need.

    Attributes:
        source: path of the CSV.
        rows: rows in the order of the CSV.
        columns: column of each field.
        constants: text of each field without a column, for all rows.
    """

    source: str
    rows: tuple[Row, ...]
    columns: Mapping[str, str]
    constants: Mapping[str, str]

    def problem(self, place: str, name: str, message: str) -> Problem:
        """Build a problem of a field, named by its column or by the option that set it."""
        if name in self.constants:
            return Problem(self.source, f"--set {name}={self.constants[name]}", "", message)
        return Problem(self.source, place, f"column {self.columns[name]}", message)


def read_rows(text: str, source: str, layout: CsvLayout) -> MeasuredRows:
    """Read the rows of the CSV ``text``; ``source`` is its path.

    Raises:
        DocumentError: the text is not CSV, or the layout does not match it.
    """
    header, lines = _table(text, source)
    columns = {name: name for name in FIELDS if name in header} | dict(layout.columns)
    problems = [
        Problem(source, place, "", message)
        for place, message in (
            *wrong_fields(columns, layout),
            *_missing_columns(header, columns, layout),
            *_unknown_units(columns, layout),
        )
    ]
    if problems:
        raise DocumentError(problems)
    constants = dict(layout.constants)
    units = {name: _unit(columns[name], layout) for name in LATENCIES if name in columns}
    rows = tuple(
        Row(
            place,
            {
                name: to_ms(cells[column], units.get(name) or "ms")
                for name, column in columns.items()
            }
            | constants,
        )
        for place, cells in lines
    )
    return MeasuredRows(source, rows, columns, constants)


def _unit(column: str, layout: CsvLayout) -> Unit | None:
    return layout.latency_unit or unit_of(column)


def _unknown_units(columns: Mapping[str, str], layout: CsvLayout) -> list[tuple[str, str]]:
    """Find columns of latencies without a unit: (place, message)."""
    return [
        (
            f"column {columns[name]}",
            "names no unit, as latency_ms does; give --unit ns, us, ms or s",
        )
        for name in LATENCIES
        if name in columns and _unit(columns[name], layout) is None
    ]


def label(function: str) -> str:
    """Convert the name to lower-case letters, digits and inner hyphens."""
    return re.sub("[^a-z0-9]", "-", function.lower()).strip("-")


def csv_lines(text: str, source: str) -> list[tuple[str, list[str]]]:
    """Return the place and cells of each line that is not empty.

    Raises:
        DocumentError: the text is not CSV.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return [
            (f"line {reader.line_num}", [cell.strip() for cell in cells])
            for cells in reader
            if cells
        ]
    except csv.Error as error:
        problem = Problem(source, f"line {reader.line_num}", "", f"is not CSV: {error}")
        raise DocumentError([problem]) from None


def _table(text: str, source: str) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """Split the CSV into its columns, and into the place and cells of each row."""
    lines = csv_lines(text, source)
    if not lines:
        message = "is empty; its first line must name the columns"
        raise DocumentError([Problem(source, "the file", "", message)])
    (_, header), *lines = lines
    problems = [
        Problem(source, "the columns", "", f"{quoted(name)} occurs {count} times; rename one")
        for name, count in Counter(header).items()
        if name and count > 1
    ]
    problems += [
        Problem(source, place, "", f"has {len(cells)} values for {len(header)} columns")
        for place, cells in lines
        if len(cells) != len(header)
    ]
    if not lines:
        problems.append(Problem(source, "the file", "", "has no row below the column names"))
    if problems:
        raise DocumentError(problems)
    return header, [(place, dict(zip(header, cells, strict=True))) for place, cells in lines]


def wrong_fields(columns: Mapping[str, str], layout: CsvLayout) -> list[tuple[str, str]]:
    """Find options for an unknown field, or for a field that is set twice: (place, message)."""
    fields = f"fields are {', '.join(FIELDS)}"
    wrong = [
        (f"{option} {name}={value}", f"unknown field {quoted(name)}; {fields}")
        for option, pairs in (("--map", layout.columns), ("--set", layout.constants))
        for name, value in pairs.items()
        if name not in FIELDS
    ]
    wrong += [
        (f"--set {name}={value}", f"the column {quoted(columns[name])} has it; remove one")
        for name, value in layout.constants.items()
        if name in columns
    ]
    return wrong


def _missing_columns(
    header: list[str], columns: Mapping[str, str], layout: CsvLayout
) -> list[tuple[str, str]]:
    """Find columns that are mapped or required, and missing: (place, message)."""
    for separator in _OTHER_SEPARATORS:
        if len(header) == 1 and separator in header[0]:
            message = f"are separated by {separator!r}; write commas, and points in decimals"
            return [("the columns", message)]
    shown = listed([quoted(name) for name in header], limit=_COLUMNS_SHOWN_MAX)
    missing = [
        (f"--map {name}={column}", f"unknown column {quoted(column)}; the columns are {shown}")
        for name, column in layout.columns.items()
        if column not in header
    ]
    absent = [n for n in REQUIRED if n not in columns and n not in layout.constants]
    if absent:
        remedy = " ".join(f"--map {name}=COLUMN" for name in absent)
        message = (
            f"none for {', '.join(absent)}; there are {shown}; write {remedy}, "
            "or --set FIELD=VALUE for a value that all rows share"
        )
        missing.append(("the columns", message))
    return missing
