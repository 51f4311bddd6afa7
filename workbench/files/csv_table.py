"""Rows of a CSV by column name, with typed cells and errors that name file, line and column."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from sys import float_info
from typing import TypeVar

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import listed, quoted
from workbench.files.csv_rows import check_width, csv_rows, plain_rows, row_error

WHOLE_MAX = 10**12

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row.

    Attributes:
        file, line: origin of the row, for errors.
        cells: text by column.
    """

    file: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Return a cell that is not empty."""
        if not self.cells[column]:
            raise self.error(column, "is empty")
        return self.cells[column]

    def one_of(self, column: str, choices: Sequence[str], noun: str) -> str:
        """Return a cell that is one of the choices; the noun names them in an error."""
        text = self.text(column)
        if text not in choices:
            message = f"there is no {noun} {quoted(text)}; there are {listed([*choices])}"
            raise self.error(column, message)
        return text

    def unique(self, column: str, lines: dict[str, int]) -> str:
        """Return a cell that no earlier row has; `lines` has the line of each and is updated."""
        text = self.text(column)
        if text in lines:
            raise self.error(
                column, f"{quoted(text)} is the {column} of line {lines[text]} already"
            )
        lines[text] = self.line
        return text

    def whole(self, column: str, *, minimum: int = 0, limit: int = WHOLE_MAX) -> int:
        """Return a cell as a whole number within bounds."""
        text = self.cells[column]
        # Some programs write whole numbers with a decimal point.
        digits = text.removesuffix(".0")
        sound = digits.isascii() and digits.isdigit() and len(digits) <= len(str(WHOLE_MAX))
        if not sound or not minimum <= int(digits) <= limit:
            message = f"{quoted(text)} is no whole number from {minimum:,} to {limit:,}"
            raise self.error(column, message)
        return int(digits)

    def number(self, column: str) -> float:
        """Return a cell as a finite number of at least 0."""
        text = self.cells[column]
        try:
            value = float(text)
        except ValueError:
            value = inf
        if not 0 <= value <= float_info.max:
            raise self.error(column, f"{quoted(text)} is no number of at least 0")
        return value

    def error(self, column: str, message: str) -> DocumentError:
        """Return the error for a column of this row."""
        return row_error(self.file, self.line, message, column)


def table_rows(file: Path, columns: Sequence[str]) -> Generator[TableRow]:
    """Yield the rows below the columns' names; a caller closes it on an error of its own.

    Raises:
        DocumentError: the file cannot be read, or lacks one of the columns.
    """
    with closing(csv_rows(file)) as rows:
        _, header = next(rows)
        missing = [column for column in columns if column not in header]
        if missing:
            message = f"there is no {', '.join(missing)}; there are {', '.join(header)}"
            raise DocumentError([Problem(str(file), "the columns", "", message)])
        for line, cells in rows:
            yield TableRow(file, line, dict(zip(header, cells, strict=True)))


def read_table(
    file: Path, columns: Sequence[str], read: Callable[[TableRow], RowT], *, noun: str = ""
) -> list[RowT]:
    """Read each row below the columns' names, at least one where rows have a noun.

    Raises:
        DocumentError: the file cannot be read, lacks a column or has no row, or `read` raises it.
    """
    with closing(table_rows(file, columns)) as rows:
        table = [read(row) for row in rows]
    if noun and not table:
        raise file_error(file, f"has no {noun} below the columns' names")
    return table


def headless_rows(file: Path, columns: Sequence[str], delimiter: str = ",") -> Generator[TableRow]:
    """Yield the rows of a file without columns' names; a caller closes it on an error of its own.

    Raises:
        DocumentError: the file cannot be read, or a row has another number of cells.
    """
    with closing(plain_rows(file, delimiter)) as rows:
        for line, cells in rows:
            check_width(file, line, cells, columns)
            yield TableRow(file, line, dict(zip(columns, cells, strict=True)))


def file_error(file: Path, message: str) -> DocumentError:
    """Return the error for a whole file."""
    return DocumentError([Problem(str(file), "the file", "", message)])
