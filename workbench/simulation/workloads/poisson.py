"""Poisson arrivals: the sum of many independent users."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from workbench.simulation.workload import Chunk
from workbench.simulation.workloads.rated import Rated
from workbench.simulation.workloads.streams import assigned, cumulative_times, generator_of


class Poisson(Rated):
    """Exponential gaps; each workflow has its own rate."""

    name: ClassVar[str] = "poisson"

    def _blocks(self, rates_rps: list[float], seed: np.random.SeedSequence) -> Iterator[Chunk]:
        # The union of Poisson processes is one at the sum of their rates.
        gaps, workflow_rng = generator_of(seed, 0), generator_of(seed, 1)
        mean_ms = 1000.0 / sum(rates_rps)
        stream = cumulative_times(lambda size: gaps.exponential(mean_ms, size))
        return assigned(stream, rates_rps, workflow_rng)
