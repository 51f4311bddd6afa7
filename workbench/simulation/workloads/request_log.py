"""Logs of others with a row for each request: counted by minute.

Published traces of model servers have this form under various names of columns. No such file ships
with the project.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import listed, quoted
from workbench.files.csv_rows import csv_rows, row_error
from workbench.simulation.workloads.counts import Counted, Counts

_MINUTES_MAX = 1_000_000  # two years
_S_PER_MINUTE = 60


@dataclass(frozen=True, slots=True)
class LogTrace:
    """Requests by function and minute; minute 0 begins with the first request.

    Attributes:
        counts: requests per minute of each function.
        minutes: length of the log.
    """

    counts: dict[str, Counts]
    minutes: int
    first_minute: int = 0

    @classmethod
    def read(cls, file: Path, time_column: str, function_column: str | None) -> Self:
        """Read a log.

        Args:
            file: CSV.
            time_column: column with the time of a request.
            function_column: column with its function; None: all are of one.

        Raises:
            DocumentError: the file cannot be read, has no such column, or a time is wrong.
        """
        times_s: dict[str, list[float]] = {}
        with closing(csv_rows(file)) as rows:
            _, header = next(rows)
            time = _index(file, header, time_column)
            function = None if function_column is None else _index(file, header, function_column)
            for line, cells in rows:
                name = "" if function is None else cells[function]
                times_s.setdefault(name, []).append(_time_s(file, line, time_column, cells[time]))
        if not times_s:
            raise DocumentError([Problem(str(file), "the file", "", "has no request")])
        first_s = min(map(min, times_s.values()))
        minutes = int((max(map(max, times_s.values())) - first_s) // _S_PER_MINUTE) + 1
        if minutes > _MINUTES_MAX:
            message = f"spans {minutes:,} minutes; they must be at most {_MINUTES_MAX:,}"
            raise DocumentError([Problem(str(file), f"column {time_column}", "", message)])
        return cls(
            {name: _by_minute(np.array(of) - first_s, minutes) for name, of in times_s.items()},
            minutes,
        )

    def functions(self) -> Iterator[str]:
        """Return the functions' names, in the order of their first request in the file."""
        return iter(self.counts)

    def rows(self) -> Iterator[tuple[str, Counts]]:
        """Implement `Trace.rows`."""
        return iter(self.counts.items())


class RequestLog(Counted):
    """Requests of a log, counted by minute."""

    name: ClassVar[str] = "log"

    file: Path = Field(description="CSV with a row for each request")
    time_column: str = Field(
        description="column with the time of a request: a date and time as in ISO 8601, or seconds"
    )
    function_column: str | None = Field(
        default=None,
        description="column with what takes the place of a function, as a model; unset: all "
        "requests are of one function",
    )

    def _trace(self) -> LogTrace:
        return LogTrace.read(self.file, self.time_column, self.function_column)


def _index(file: Path, header: list[str], column: str) -> int:
    if column not in header:
        message = f"none is {quoted(column)}; there are {listed(header)}"
        raise DocumentError([Problem(str(file), "the columns", "", message)])
    return header.index(column)


def _time_s(file: Path, line: int, column: str, text: str) -> float:
    with suppress(ValueError):
        if isfinite(time_s := float(text)):
            return time_s
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    message = f"{quoted(text)} is no date and time as in ISO 8601, nor a number of seconds"
    raise row_error(file, line, message, column)


def _by_minute(times_s: NDArray[np.float64], minutes: int) -> Counts:
    return np.bincount((times_s // _S_PER_MINUTE).astype(np.int64), minlength=minutes)
