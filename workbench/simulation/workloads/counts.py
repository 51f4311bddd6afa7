"""Arrivals from counts per minute: functions mapped to workflows, requests placed in minutes."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag

from scheduler.model.message_text import listed, quoted
from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent, WorkflowKey
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.rated import Rate
from workbench.simulation.workloads.streams import generator_of
from workbench.simulation.workloads.workflow_names import unknown_workflow, workflow_indices

_MINUTE_MS = 60_000.0

Counts = NDArray[np.int64]
Positions = NDArray[np.float64]  # in a minute, 0 to 1
WorkflowOf = Annotated[
    Annotated[Literal["round-robin", "at-random"], Tag("rule")]
    | Annotated[dict[str, str], Field(min_length=1), Tag("functions")],
    Discriminator(lambda value: "functions" if isinstance(value, Mapping) else "rule"),
]


class Trace(Protocol):
    """Requests per minute of many functions."""

    @property
    def first_minute(self) -> int:
        """Number of the first minute; the following ones are consecutive."""
        ...

    @property
    def minutes(self) -> int:
        """Number of minutes."""
        ...

    def functions(self) -> Iterable[str]:
        """Return the names of all functions."""
        ...

    def rows(self) -> Iterator[tuple[str, Counts]]:
        """Yield a function and its counts, (minutes,); a function may have several rows."""
        ...


class Counted(Workload):
    """A trace's counts: a window of it, scaled, for the given workflows."""

    rate_rps: Rate | None = Field(
        default=None,
        description="mean requests per second of the window: each request of the trace occurs with "
        "a probability, or several times; unset: as many as the trace has",
    )
    first_minute: int | None = Field(
        default=None,
        ge=0,
        strict=True,
        description="first minute of the window; unset: of the trace",
    )
    minutes: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="length of the window; unset: to the trace's end",
    )
    workflow_of: WorkflowOf = Field(
        default="round-robin",
        description="round-robin: the functions, sorted by name, belong to the workflows in turn; "
        "at-random: each request is of a random workflow; or the workflow of each function by its "
        "name, without the other functions",
    )
    within_minute: Literal["random", "even"] = Field(
        default="random",
        description="random: uniformly at random in the minute, as Poisson arrivals are; even: a "
        "workflow's requests equally spaced",
    )

    @abstractmethod
    def _trace(self) -> Trace:
        """Return the trace."""

    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        counts = self._counts(workflows)
        means_rps: list[float] = (counts.mean(axis=1) * self._factor(counts) / 60).tolist()
        if self.workflow_of == "at-random":
            return [means_rps[0] / len(workflows)] * len(workflows)
        return means_rps

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        blocks = partial(self._blocks, self._counts(workflows), len(workflows), seed)
        return ChunkedArrivals(workflows=workflows, blocks=blocks, extent=extent)

    def _blocks(
        self, counts: Counts, workflows: int, seed: np.random.SeedSequence
    ) -> Iterator[Chunk]:
        rng = generator_of(seed, 0)
        copies, extra_probability = divmod(self._factor(counts), 1.0)
        for minute, traced in enumerate(counts.T):
            requests = traced * int(copies) + rng.binomial(traced, extra_probability)
            slices = _even(requests) if self.within_minute == "even" else _at_random(requests, rng)
            for sizes, positions in slices:
                order = np.argsort(positions, kind="stable")
                if self.workflow_of == "at-random":
                    indices = rng.integers(workflows, size=order.size, dtype=np.int32)
                else:
                    indices = np.repeat(np.arange(workflows, dtype=np.int32), sizes)[order]
                yield (minute + positions[order]) * _MINUTE_MS, indices

    def _factor(self, counts: Counts) -> float:
        if self.rate_rps is None:
            return 1.0
        requests, minutes = int(counts.sum()), len(counts[0])
        return self.rate_rps * 60 * minutes / requests

    def _counts(self, workflows: tuple[WorkflowKey, ...]) -> Counts:
        """Requests of each workflow, (workflows, minutes); one row for all if at random."""
        trace = self._trace()
        window = self._window(trace)
        row_of = self._rows_of(set(trace.functions()), workflows)
        height = 1 if self.workflow_of == "at-random" else len(workflows)
        counts = np.zeros((height, window.stop - window.start), np.int64)
        for function, traced in trace.rows():
            if function in row_of:
                counts[row_of[function]] += traced[window]
        if not counts.any():
            raise self.problem(
                "", "no request of these functions is in the window; enlarge it or add functions"
            )
        return counts

    def _window(self, trace: Trace) -> slice:
        """Window as positions in the trace."""
        first = trace.first_minute if self.first_minute is None else self.first_minute
        end = trace.first_minute + trace.minutes
        range_text = f"the trace has minutes {trace.first_minute:,} to {end - 1:,}"
        if not trace.first_minute <= first < end:
            raise self.problem("first_minute", f"is {first:,}, but {range_text}")
        last = end if self.minutes is None else first + self.minutes
        if last > end:
            raise self.problem("minutes", f"the window ends with {last - 1:,}, but {range_text}")
        return slice(first - trace.first_minute, last - trace.first_minute)

    def _rows_of(
        self, functions: set[str], workflows: tuple[WorkflowKey, ...]
    ) -> Mapping[str, int]:
        """Row of the counts for each function."""
        if self.workflow_of == "at-random":
            return dict.fromkeys(functions, 0)
        if not isinstance(self.workflow_of, dict):
            return {name: i % len(workflows) for i, name in enumerate(sorted(functions))}
        indices = workflow_indices(workflows)
        for function, workflow in self.workflow_of.items():
            if function not in functions:
                message = (
                    f"{quoted(function)} is no function; the trace has {listed(sorted(functions))}"
                )
                raise self.problem("workflow_of", message)
            if workflow not in indices:
                raise self.problem("workflow_of", unknown_workflow(workflow, workflows))
        return {function: indices[name] for function, name in self.workflow_of.items()}


def _at_random(counts: Counts, rng: np.random.Generator) -> Iterator[tuple[Counts, Positions]]:
    """Yield slices of a minute: requests of each row, and their positions, row after row."""
    slices = _slices(counts)
    sizes = rng.multinomial(counts, [1 / slices] * slices)
    for number in range(slices):
        inside = rng.random(int(sizes[:, number].sum()))
        yield sizes[:, number], (number + inside) / slices


def _even(counts: Counts) -> Iterator[tuple[Counts, Positions]]:
    """Yield slices as `_at_random`, with request k of n at (k + 1/2) / n."""
    slices = _slices(counts)
    # First k of the slice that begins at s / slices: the smallest with (k + 1/2) / n >= s / slices.
    edges = [(2 * counts * s + slices - 1) // (2 * slices) for s in range(slices + 1)]
    for first, last in pairwise(edges):
        bounds = zip(first, last, counts, strict=True)
        yield last - first, np.concatenate([(np.arange(a, b) + 0.5) / n for a, b, n in bounds])


def _slices(counts: Counts) -> int:
    """Number of slices of a minute, so that about one chunk is in memory."""
    return 1 + int(counts.sum()) // CHUNK_MAX
