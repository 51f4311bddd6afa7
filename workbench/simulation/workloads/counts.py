"""Counts per minute to arrivals: of functions to workflows, and within each minute."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag

from scheduler.model.quoting import listed, quoted
from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent, WorkflowKey
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.rated import Rate
from workbench.simulation.workloads.streams import chance_of
from workbench.simulation.workloads.workflow_names import spellings, unknown

_MINUTE_MS = 60_000.0

Counts = NDArray[np.int64]
Positions = NDArray[np.float64]  # in a minute, 0 to 1
WorkflowOf = Annotated[
    Annotated[Literal["round-robin", "at-random"], Tag("rule")]
    | Annotated[dict[str, str], Field(min_length=1), Tag("functions")],
    Discriminator(lambda given: "functions" if isinstance(given, Mapping) else "rule"),
]


class Trace(Protocol):
    """Requests per minute of many functions."""

    @property
    def first_minute(self) -> int:
        """The number of the first minute; each that follows has the next one."""
        ...

    @property
    def minutes(self) -> int:
        """How many minutes there are."""
        ...

    def functions(self) -> Iterable[str]:
        """The names of all functions."""
        ...

    def rows(self) -> Iterator[tuple[str, Counts]]:
        """A function and its counts, (minutes,); a function may have several rows."""
        ...


class Counted(Workload):
    """A trace's counts: a window of it, scaled, for the workflows at hand."""

    rate_rps: Rate | None = Field(
        default=None,
        description="mean requests a second of the window: each request of the trace is kept with "
        "a probability, or stands for several; unset: as many as the trace has",
    )
    first_minute: int | None = Field(
        default=None, ge=0, strict=True, description="where the window begins; unset: at the first"
    )
    minutes: int | None = Field(
        default=None, ge=1, strict=True, description="how long it is; unset: to the trace's end"
    )
    workflow_of: WorkflowOf = Field(
        default="round-robin",
        description="round-robin: the functions, sorted by name, belong to the workflows in turn; "
        "at-random: each request is of any workflow; or the workflow of each function by its "
        "name, the others being left out",
    )
    within_minute: Literal["random", "even"] = Field(
        default="random",
        description="random: uniformly at random in the minute, as Poisson arrivals are; even: a "
        "workflow's requests equally spaced",
    )

    @abstractmethod
    def _trace(self) -> Trace:
        """What is counted."""

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
        chance = chance_of(seed, 0)
        copies, kept = divmod(self._factor(counts), 1.0)
        for minute, traced in enumerate(counts.T):
            wanted = traced * int(copies) + chance.binomial(traced, kept)
            slices = _even(wanted) if self.within_minute == "even" else _at_random(wanted, chance)
            for sizes, positions in slices:
                order = np.argsort(positions, kind="stable")
                if self.workflow_of == "at-random":
                    indices = chance.integers(workflows, size=order.size, dtype=np.int32)
                else:
                    indices = np.repeat(np.arange(workflows, dtype=np.int32), sizes)[order]
                yield (minute + positions[order]) * _MINUTE_MS, indices

    def _factor(self, counts: Counts) -> float:
        if self.rate_rps is None:
            return 1.0
        requests, minutes = int(counts.sum()), len(counts[0])
        return self.rate_rps * 60 * minutes / requests

    def _counts(self, workflows: tuple[WorkflowKey, ...]) -> Counts:
        """Requests of each workflow, (workflows, minutes); of all in one row if at random."""
        trace = self._trace()
        window = self._window(trace)
        row_of = self._rows_of(set(trace.functions()), workflows)
        height = 1 if self.workflow_of == "at-random" else len(workflows)
        counts = np.zeros((height, window.stop - window.start), np.int64)
        for function, traced in trace.rows():
            if function in row_of:
                counts[row_of[function]] += traced[window]
        if not counts.any():
            raise self.problem("", "no request is in that window, of those functions; take more")
        return counts

    def _window(self, trace: Trace) -> slice:
        """The window, as positions in the trace."""
        first = trace.first_minute if self.first_minute is None else self.first_minute
        end = trace.first_minute + trace.minutes
        there = f"the trace has minutes {trace.first_minute:,} to {end - 1:,}"
        if not trace.first_minute <= first < end:
            raise self.problem("first_minute", f"is {first:,}, but {there}")
        last = end if self.minutes is None else first + self.minutes
        if last > end:
            raise self.problem("minutes", f"the window ends with {last - 1:,}, but {there}")
        return slice(first - trace.first_minute, last - trace.first_minute)

    def _rows_of(
        self, functions: set[str], workflows: tuple[WorkflowKey, ...]
    ) -> Mapping[str, int]:
        """In which row of the counts each function belongs."""
        if self.workflow_of == "at-random":
            return dict.fromkeys(functions, 0)
        if not isinstance(self.workflow_of, dict):
            return {name: i % len(workflows) for i, name in enumerate(sorted(functions))}
        known = spellings(workflows)
        for function, workflow in self.workflow_of.items():
            if function not in functions:
                there = f"the trace has {listed(sorted(functions))}"
                raise self.problem("workflow_of", f"{quoted(function)} is no function; {there}")
            if workflow not in known:
                raise self.problem("workflow_of", unknown(workflow, workflows))
        return {function: known[name] for function, name in self.workflow_of.items()}


def _at_random(counts: Counts, chance: np.random.Generator) -> Iterator[tuple[Counts, Positions]]:
    """Slices of a minute: how many requests of each row, and where in the minute, row after row."""
    slices = _slices(counts)
    sizes = chance.multinomial(counts, [1 / slices] * slices)
    for number in range(slices):
        inside = chance.random(int(sizes[:, number].sum()))
        yield sizes[:, number], (number + inside) / slices


def _even(counts: Counts) -> Iterator[tuple[Counts, Positions]]:
    """As `_at_random`: request k of n is at (k + 1/2) / n."""
    slices = _slices(counts)
    # The first k of a slice that begins at s / slices: the least with (k + 1/2) / n >= s / slices.
    edges = [(2 * counts * s + slices - 1) // (2 * slices) for s in range(slices + 1)]
    for first, last in pairwise(edges):
        bounds = zip(first, last, counts, strict=True)
        yield last - first, np.concatenate([(np.arange(a, b) + 0.5) / n for a, b, n in bounds])


def _slices(counts: Counts) -> int:
    """In how many a minute is made, so that a chunk's worth of it is in memory."""
    return 1 + int(counts.sum()) // CHUNK_MAX
