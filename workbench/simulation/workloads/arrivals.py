"""Arrivals in chunks: what every workload gives."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.model.quoting import quoted
from scheduler.model.reading import Problem
from workbench.simulation.workload import CHUNK_MAX, Chunk

WorkflowKey = tuple[str, str]  # namespace, name
Times = NDArray[np.float64]  # ms since the start, rising
Indices = NDArray[np.int32]  # of workflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much of a workload is wanted; what is None does not limit it.

    Attributes:
        requests: this many, at least 1.
        duration_ms: only what arrives before it.

    Raises:
        ValueError: a limit is not more than 0.
    """

    requests: int | None = None
    duration_ms: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests", "duration_ms"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:  # a NaN is not
                raise ValueError(f"{name} is {quoted(limit)}; it must be more than 0")


UNLIMITED = Extent()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedArrivals:
    """What a simulation runs on: `workbench.simulation.workload.Arrivals`.

    Attributes:
        workflows: (namespace, name) of each workflow, which the chunks have by index.
        blocks: starts again at each call: rising times and as many indices, in blocks of any size,
            with or without an end.
        extent: what is wanted of them.
        warnings: what its user should know, and what stops nothing.
    """

    workflows: tuple[WorkflowKey, ...]
    blocks: Callable[[], Iterator[Chunk]]
    extent: Extent
    warnings: tuple[Problem, ...] = ()

    def chunks(self) -> Iterator[Chunk]:
        """(time in ms, index of the workflow) of all arrivals, 1 to CHUNK_MAX at a time."""
        left = self.extent.requests
        until_ms = self.extent.duration_ms
        for times_ms, workflows in self.blocks():
            size = times_ms.size
            count = size if until_ms is None else int(np.searchsorted(times_ms, until_ms))
            if left is not None:
                count = min(count, left)
                left -= count
            for first in range(0, count, CHUNK_MAX):
                last = min(first + CHUNK_MAX, count)
                yield times_ms[first:last], workflows[first:last]
            if count < size or left == 0:
                return
