"""Periodic arrivals: each workflow at its own fixed rate, as frames of cameras."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import Times
from workbench.simulation.workloads.rated import Rated
from workbench.simulation.workloads.streams import block_sizes, generator_of, merge


class Periodic(Rated):
    """Equal gaps; the first request of each workflow is at random within the first gap."""

    name: ClassVar[str] = "periodic"

    def _blocks(self, rates_rps: list[float], seed: np.random.SeedSequence) -> Iterator[Chunk]:
        phase_ratios = generator_of(seed, 0).random(len(rates_rps)).tolist()
        return merge(
            [
                (index, _times(1000.0 / rate_rps, phase_ratio, min(size, CHUNK_MAX)))
                for index, (rate_rps, size, phase_ratio) in enumerate(
                    zip(rates_rps, block_sizes(rates_rps), phase_ratios, strict=True)
                )
                if rate_rps
            ]
        )


def _times(period_ms: float, phase_ratio: float, size: int) -> Iterator[Times]:
    first = 0
    while True:
        yield period_ms * (phase_ratio + np.arange(first, first + size, dtype=np.float64))
        first += size
