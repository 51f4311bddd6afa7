"""Poisson arrivals: what many users who know nothing of one another make."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import numpy as np

from workbench.simulation.workload import Chunk
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent, WorkflowKey
from workbench.simulation.workloads.rated import Rated
from workbench.simulation.workloads.streams import added_up, chance_of, mixed


class Poisson(Rated):
    """Exponential gaps; each workflow at its own rate."""

    name: ClassVar[str] = "poisson"

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        blocks = partial(_blocks, self._rates_rps(workflows), seed)
        return ChunkedArrivals(workflows=workflows, blocks=blocks, extent=extent)


def _blocks(rates_rps: list[float], seed: np.random.SeedSequence) -> Iterator[Chunk]:
    """Poisson processes together are one of the sum of their rates, its marks drawn at random."""
    gaps, chosen = chance_of(seed, 0), chance_of(seed, 1)
    mean_ms = 1000.0 / sum(rates_rps)
    stream = added_up(lambda size: gaps.exponential(mean_ms, size))
    return mixed(stream, rates_rps, chosen)
