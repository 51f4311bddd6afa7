"""Rows of a CSV, one at a time, with line numbers for errors.

Only the current row is in memory, whatever the size of the file.
"""

import csv
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import quoted, reason_of

_LINE_MAX = 1 << 20  # bytes; a day of minutes needs a hundredth


def csv_rows(file: Path) -> Generator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row that is not empty; the first row has the columns' names.

    Cells are stripped, every row has one cell per column, and there is at least the first row. The
    file stays open until the generator ends; a caller closes it on an error of its own.

    Raises:
        DocumentError: the file cannot be read, is not CSV in UTF-8, or is empty.
    """
    header: list[str] = []
    with closing(plain_rows(file)) as rows:
        for line, row in rows:
            if not header:
                header = _checked(file, row)
            check_width(file, line, row, header)
            yield line, row
    if not header:
        message = "is empty; its first line must name the columns"
        raise DocumentError([Problem(str(file), "the file", "", message)])


def plain_rows(file: Path, delimiter: str = ",") -> Generator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row that is not empty, of any width; cells are stripped.

    Raises:
        DocumentError: the file cannot be read, or is not CSV in UTF-8.
    """
    with closing(_lines(file)) as lines:
        reader = csv.reader(lines, strict=True, delimiter=delimiter)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, [cell.strip() for cell in cells]
        except csv.Error as error:
            raise row_error(file, reader.line_num, f"is not valid CSV: {error}") from None


def check_width(file: Path, line: int, row: Sequence[str], columns: Sequence[str]) -> None:
    """Check that a row has a cell per column.

    Raises:
        DocumentError: it has another number.
    """
    if len(row) != len(columns):
        raise row_error(file, line, f"has {len(row)} values for {len(columns)} columns")


def row_error(file: Path, line: int, message: str, column: str = "") -> DocumentError:
    """Return the error for a line, or for one column of it."""
    place = f"column {column}" if column else ""
    return DocumentError([Problem(str(file), f"line {line}", place, message)])


def _checked(file: Path, header: list[str]) -> list[str]:
    for name, count in Counter(header).items():
        if name and count > 1:
            message = f"{quoted(name)} occurs {count} times; rename one"
            raise DocumentError([Problem(str(file), "the columns", "", message)])
    return header


def _lines(file: Path) -> Generator[str]:
    """Yield the lines as text, with line ends, which the csv module interprets."""
    try:
        with file.open("rb") as source:
            number = 0
            while line := source.readline(_LINE_MAX + 1):
                number += 1
                if len(line) > _LINE_MAX:
                    raise row_error(file, number, f"has more than {_LINE_MAX:,} bytes")
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise row_error(file, number, f"is not UTF-8: {error.reason}") from None
    except OSError as error:
        message = f"cannot be read: {reason_of(error)}"
        raise DocumentError([Problem(str(file), "the file", "", message)]) from None
