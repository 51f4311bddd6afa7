"""Requests from the rows of a CSV."""

from collections.abc import Generator, Sequence
from contextlib import closing
from math import inf
from pathlib import Path

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import listed, quoted
from workbench.files.csv_rows import csv_rows, row_error
from workbench.profiles.measured_numbers import number
from workbench.simulation.workloads.arrivals import WorkflowKey
from workbench.simulation.workloads.workflow_names import unknown_workflow, workflow_indices

_UNITS_MS = {"time_ms": 1.0, "time_s": 1000.0}
_WORKFLOW = "workflow"
_TIME_MAX_MS = 1e14  # microseconds since the epoch exceed it
_COLUMNS_SHOWN_MAX = 30


def request_rows(
    file: Path, workflows: Sequence[WorkflowKey], *, from_first: bool
) -> Generator[tuple[int, float, int]]:
    """Yield (line, time in ms, index of the workflow) of each request, in the order of the file.

    Raises:
        DocumentError: the file is wrong, or holds no request.
    """
    with closing(csv_rows(file)) as rows:
        _, header = next(rows)
        time_column, workflow_column = _columns(file, header)
        unit = header[time_column]
        indices = workflow_indices(workflows)
        start_ms, latest_ms = (None if from_first else 0.0), -inf
        for line, cells in rows:
            time_ms = _time_ms(file, line, unit, cells[time_column])
            if time_ms < latest_ms:
                message = f"{cells[time_column]} is before the row above; sort the rows by time"
                raise row_error(file, line, message, unit)
            latest_ms = time_ms
            if start_ms is None:
                start_ms = time_ms
            name = cells[workflow_column]
            if name not in indices:
                raise row_error(file, line, unknown_workflow(name, workflows), _WORKFLOW)
            yield line, time_ms - start_ms, indices[name]
    if latest_ms == -inf:
        message = "has no row below the columns' names"
        raise DocumentError([Problem(str(file), "the file", "", message)])


def _columns(file: Path, header: list[str]) -> tuple[int, int]:
    """Columns of the time and of the workflow."""
    units = [name for name in _UNITS_MS if name in header]
    shown = listed([quoted(name) for name in header], limit=_COLUMNS_SHOWN_MAX)
    if not units:
        message = f"none is {' or '.join(_UNITS_MS)}; there are {shown}"
    elif len(units) > 1:
        message = f"{' and '.join(units)} both exist; remove one"
    elif _WORKFLOW not in header:
        message = f"none is {_WORKFLOW}; there are {shown}"
    else:
        return header.index(units[0]), header.index(_WORKFLOW)
    raise DocumentError([Problem(str(file), "the columns", "", message)])


def _time_ms(file: Path, line: int, unit: str, text: str) -> float:
    value = number(text)
    if value is None:
        raise row_error(file, line, f"{quoted(text)} is not a finite number", unit)
    time_ms = value * _UNITS_MS[unit]
    if time_ms < 0:
        message = f"{text} is negative; times count from the start of the simulation"
        raise row_error(file, line, message, unit)
    if time_ms > _TIME_MAX_MS:
        message = f"{quoted(text)} is more than {_TIME_MAX_MS:.0e} ms; is it in another unit?"
        raise row_error(file, line, message, unit)
    return time_ms
