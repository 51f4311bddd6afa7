"""Poisson arrivals: the sum of many independent users."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import numpy as np

from workbench.simulation.workload import Chunk
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent, WorkflowKey
from workbench.simulation.workloads.rated import Rated
from workbench.simulation.workloads.streams import assigned, cumulative_times, generator_of


class Poisson(Rated):
    """Exponential gaps; each workflow has its own rate."""

    name: ClassVar[str] = "poisson"

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        blocks = partial(_blocks, self._rates_rps(workflows), seed)
        return ChunkedArrivals(workflows=workflows, blocks=blocks, extent=extent)


def _blocks(rates_rps: list[float], seed: np.random.SeedSequence) -> Iterator[Chunk]:
    """Yield the union of Poisson processes: one at the sum of the rates, with random workflows."""
    gaps, workflow_rng = generator_of(seed, 0), generator_of(seed, 1)
    mean_ms = 1000.0 / sum(rates_rps)
    stream = cumulative_times(lambda size: gaps.exponential(mean_ms, size))
    return assigned(stream, rates_rps, workflow_rng)
