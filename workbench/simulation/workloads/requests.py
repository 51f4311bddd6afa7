"""A user's own requests: a CSV with a time and a workflow per row, read lazily."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from scheduler.model.document_reader import DocumentError, Problem
from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent, WorkflowKey
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.request_rows import request_rows

_GAP_WARNINGS_MAX = 20
_MINUTE_MS = 60_000.0
_FIRST_MAX_MS = 366 * 24 * 60 * _MINUTE_MS  # a later first request has another time origin
_SPAN_MIN_MS = 1000.0  # too short for a rate


@dataclass(frozen=True, slots=True)
class _Survey:
    """Summary of a whole file."""

    counts: list[int]  # by workflow
    last_ms: float
    warnings: tuple[Problem, ...]


class Requests(Workload):
    """Requests from a CSV, in the order of their times."""

    name: ClassVar[str] = "requests"

    file: Path = Field(
        description="CSV with a column time_ms or time_s, sorted, counted from the start of the "
        "simulation; and a column workflow"
    )
    from_first: bool = Field(
        default=False,
        strict=True,
        description="times count from the first request, for example for times since the epoch",
    )
    hole_minutes: float = Field(
        default=10.0, gt=0, strict=True, description="warn about longer periods without a request"
    )

    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        survey = self._survey(workflows)
        seconds = max(survey.last_ms, _SPAN_MIN_MS) / 1000.0
        return [count / seconds for count in survey.counts]

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        """Implement `arrivals`; read the whole file first, so that no error ends a run early."""
        del seed  # nothing is random
        return ChunkedArrivals(
            workflows=workflows,
            blocks=partial(self._blocks, workflows),
            extent=extent,
            warnings=self._survey(workflows).warnings,
        )

    def _blocks(self, workflows: tuple[WorkflowKey, ...]) -> Iterator[Chunk]:
        times_ms: list[float] = []
        indices: list[int] = []
        for _, time_ms, index in request_rows(self.file, workflows, from_first=self.from_first):
            times_ms.append(time_ms)
            indices.append(index)
            if len(times_ms) == CHUNK_MAX:
                yield np.array(times_ms), np.array(indices, np.int32)
                times_ms.clear()
                indices.clear()
        yield np.array(times_ms), np.array(indices, np.int32)

    def _survey(self, workflows: tuple[WorkflowKey, ...]) -> _Survey:
        counts = [0] * len(workflows)
        warnings: list[Problem] = []
        gaps = 0
        last_ms = 0.0
        with closing(request_rows(self.file, workflows, from_first=self.from_first)) as rows:
            for number, (line, time_ms, index) in enumerate(rows):
                counts[index] += 1
                if number == 0 and time_ms > _FIRST_MAX_MS:
                    message = "is more than a year after the start; set fromFirst: true"
                    raise DocumentError([Problem(str(self.file), f"line {line}", "time", message)])
                minutes = (time_ms - last_ms) / _MINUTE_MS
                last_ms = time_ms
                if minutes > self.hole_minutes:
                    gaps += 1
                    if gaps <= _GAP_WARNINGS_MAX:
                        message = f"there is no request in the {minutes:,.1f} minutes before it"
                        if number == 0:
                            message += "; if times have another origin, set fromFirst: true"
                        warnings.append(self._warning(f"line {line}", message))
        if gaps > _GAP_WARNINGS_MAX:
            message = f"has {gaps - _GAP_WARNINGS_MAX:,} more such gaps"
            warnings.append(self._warning("the file", message))
        return _Survey(counts, last_ms, tuple(warnings))

    def _warning(self, place: str, message: str) -> Problem:
        return Problem(str(self.file), place, "", message, warning=True)
