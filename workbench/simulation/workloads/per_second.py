"""Arrivals from counts per second: a CSV with a row for each second."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scheduler.model.message_text import quoted
from workbench.files.csv_rows import csv_rows
from workbench.files.csv_table import file_error, table_rows
from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent, WorkflowKey
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.rated import Rate
from workbench.simulation.workloads.streams import generator_of
from workbench.simulation.workloads.workflow_names import unknown_workflow, workflow_indices

SECOND_COLUMN = "second"
ALL_COLUMN = "requests"
_COUNT_MAX = 1_000_000  # requests of a workflow in a second
_SECOND_MS = 1000.0

Counts = NDArray[np.int64]


class PerSecond(Workload):
    """Requests counted by second, placed at random within it."""

    name: ClassVar[str] = "per-second"

    file: Path = Field(
        description="CSV with a column `second`, whose rows follow one another without a gap, and "
        "a column of counts for each workflow by its name; or one column `requests`, of which "
        "each is of a random workflow"
    )
    rate_rps: Rate | None = Field(
        default=None,
        description="mean requests per second: each request of the file occurs with a "
        "probability, or several times; unset: as many as the file has",
    )

    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        columns = self._columns(workflows)
        counts = self._counts(columns)
        means_rps = counts.mean(axis=0) * self._factor(counts)
        rates_rps = np.zeros(len(workflows))
        if ALL_COLUMN in columns:
            rates_rps[:] = means_rps[0] / len(workflows)
        else:
            rates_rps[list(columns.values())] = means_rps
        rates: list[float] = rates_rps.tolist()
        return rates

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        columns = self._columns(workflows)
        counts = self._counts(columns)  # no error ends a run
        blocks = partial(self._blocks, counts, columns, len(workflows), seed)
        return ChunkedArrivals(workflows=workflows, blocks=blocks, extent=extent)

    def _blocks(
        self, counts: Counts, columns: dict[str, int], workflows: int, seed: np.random.SeedSequence
    ) -> Iterator[Chunk]:
        rng = generator_of(seed, 0)
        numbers = np.array(list(columns.values()), np.int32)
        copies, extra_probability = divmod(self._factor(counts), 1.0)
        for second, listed in enumerate(counts):
            requests = listed * int(copies) + rng.binomial(listed, extra_probability)
            parts = 1 + int(requests.sum()) // CHUNK_MAX
            sizes = rng.multinomial(requests, [1 / parts] * parts)
            for part in range(parts):
                indices = np.repeat(numbers, sizes[:, part])
                if ALL_COLUMN in columns:
                    indices = rng.integers(workflows, size=indices.size, dtype=np.int32)
                positions = (part + rng.random(indices.size)) / parts
                order = np.argsort(positions, kind="stable")
                yield (second + positions[order]) * _SECOND_MS, indices[order]

    def _factor(self, counts: Counts) -> float:
        return 1.0 if self.rate_rps is None else self.rate_rps * len(counts) / int(counts.sum())

    def _columns(self, workflows: tuple[WorkflowKey, ...]) -> dict[str, int]:
        """Return the index of the workflow of each column; 0 for the column of all."""
        with closing(csv_rows(self.file)) as rows:
            _, header = next(rows)
        names = [name for name in header if name != SECOND_COLUMN]
        if names == [ALL_COLUMN]:
            return {ALL_COLUMN: 0}
        indices = workflow_indices(workflows)
        columns: dict[str, int] = {}
        for name in names:
            if name not in indices:
                raise file_error(self.file, f"column {name}: {unknown_workflow(name, workflows)}")
            if indices[name] in columns.values():
                raise file_error(self.file, f"the workflow {quoted(name)} has two columns")
            columns[name] = indices[name]
        if not columns:
            raise file_error(self.file, "has no column of counts: name it after a workflow")
        return columns

    def _counts(self, columns: dict[str, int]) -> Counts:
        """Read the counts of each second, (seconds, columns).

        Raises:
            DocumentError: a cell is no count, a second is missing, or nothing is counted.
        """
        previous: int | None = None
        counts: list[list[int]] = []
        with closing(table_rows(self.file, [SECOND_COLUMN, *columns])) as rows:
            for row in rows:
                second = row.whole(SECOND_COLUMN)
                if previous is not None and second != previous + 1:
                    raise row.error(
                        SECOND_COLUMN, f"{second} follows {previous}; add {previous + 1}"
                    )
                previous = second
                counts.append([row.whole(name, limit=_COUNT_MAX) for name in columns])
        if not any(map(any, counts)):
            raise file_error(self.file, "counts no request")
        return np.array(counts, np.int64)
