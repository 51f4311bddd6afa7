"""Traces in the format of the Azure Functions 2019 data set: one row per function and day.

The format is that of AzurePublicDataset's ``invocations_per_function_md.anon.d01.csv``: columns
HashOwner, HashApp, HashFunction, Trigger, then the minutes of the day by number. Only HashFunction
and the minutes are read. No such file ships with the project.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import quoted
from workbench.files.csv_rows import csv_rows, row_error
from workbench.simulation.workloads.counts import Counted, Counts

_FUNCTION = "HashFunction"
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class AzureTrace:
    """A file of this format; one row at a time is in memory.

    Attributes:
        function_column: column of the function's name.
        minute_column: column of the first minute; all others follow.
        first_minute: number of that minute.
    """

    file: Path
    function_column: int
    minute_column: int
    first_minute: int
    minutes: int

    @classmethod
    def open_file(cls, file: Path) -> Self:
        """Open a trace and read its columns.

        Raises:
            DocumentError: the file cannot be read, or has another format.
        """
        _, header = next(csv_rows(file))
        if _FUNCTION not in header:
            raise _columns_problem(file, f"none is {_FUNCTION}")
        minute_columns = [i for i, name in enumerate(header) if _is_count(name)]
        if not minute_columns:
            raise _columns_problem(file, "none is a minute, named by its number")
        first = minute_columns[0]
        first_minute = int(header[first])
        for i, name in enumerate(header[first:]):
            if name != str(first_minute + i):
                expected = f"{first_minute + i} should follow {header[first + i - 1]}"
                raise _columns_problem(file, f"{expected}, not {quoted(name)}")
        function_column = header.index(_FUNCTION)
        return cls(file, function_column, first, first_minute, len(minute_columns))

    def functions(self) -> Iterator[str]:
        """Return the functions' names, in the order of the file."""
        return (cells[self.function_column] for _, cells in self._lines())

    def rows(self) -> Iterator[tuple[str, Counts]]:
        """Implement `Trace.rows`.

        Raises:
            DocumentError: a cell is not a count.
        """
        with closing(self._lines()) as lines:
            for line, cells in lines:
                yield cells[self.function_column], self._counts(line, cells[self.minute_column :])

    def _lines(self) -> Generator[tuple[int, list[str]]]:
        rows = csv_rows(self.file)
        next(rows)
        return rows

    def _counts(self, line: int, cells: list[str]) -> Counts:
        if not _are_counts(cells):
            minute, text = next((i, cell) for i, cell in enumerate(cells) if not _is_count(cell))
            message = f"{quoted(text)} is not a whole number from 0 to {10**_DIGITS_MAX - 1:,}"
            raise row_error(self.file, line, message, str(self.first_minute + minute))
        return np.array(cells, np.int64)


class Azure(Counted):
    """Requests counted in a file of the Azure format."""

    name: ClassVar[str] = "azure"

    file: Path = Field(description="CSV with a column HashFunction and a column for each minute")

    def _trace(self) -> AzureTrace:
        return AzureTrace.open_file(self.file)


def _are_counts(cells: list[str]) -> bool:
    """Return whether all cells are counts; joined, because a file has millions of cells."""
    digits = "".join(cells)
    sound = digits.isascii() and digits.isdigit() and all(cells)
    return sound and max(map(len, cells)) <= _DIGITS_MAX


def _is_count(text: str) -> bool:
    return _are_counts([text])


def _columns_problem(file: Path, message: str) -> DocumentError:
    form = f"{message}; they must be HashOwner, HashApp, {_FUNCTION}, Trigger, then the minutes"
    return DocumentError([Problem(str(file), "the columns", "", form)])
