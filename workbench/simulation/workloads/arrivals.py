"""Arrivals in chunks, the output of every workload."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.model.document_reader import Problem
from scheduler.model.message_text import quoted
from workbench.simulation.workload import CHUNK_MAX, Chunk

WorkflowKey = tuple[str, str]  # namespace, name
Times = NDArray[np.float64]  # ms since the start, ascending
Indices = NDArray[np.int32]  # of workflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Limits of a workload; None is no limit.

    Attributes:
        requests: number of requests, at least 1.
        duration_ms: end of the arrivals.

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
    """Arrivals of a simulation: implements `workbench.simulation.workload.Arrivals`.

    Attributes:
        workflows: (namespace, name) of each workflow; chunks refer to them by index.
        blocks: function that returns a new iterator at each call: ascending times and as many
            indices, in blocks of any size, finite or not.
        extent: limits of the arrivals.
        warnings: findings that do not prevent a run.
    """

    workflows: tuple[WorkflowKey, ...]
    blocks: Callable[[], Iterator[Chunk]]
    extent: Extent
    warnings: tuple[Problem, ...] = ()

    def chunks(self) -> Iterator[Chunk]:
        """Yield (time in ms, index of the workflow) of all arrivals, 1 to CHUNK_MAX at a time."""
        remaining = self.extent.requests
        until_ms = self.extent.duration_ms
        for times_ms, workflows in self.blocks():
            size = times_ms.size
            count = size if until_ms is None else int(np.searchsorted(times_ms, until_ms))
            if remaining is not None:
                count = min(count, remaining)
                remaining -= count
            for first in range(0, count, CHUNK_MAX):
                last = min(first + CHUNK_MAX, count)
                yield times_ms[first:last], workflows[first:last]
            if count < size or remaining == 0:
                return
