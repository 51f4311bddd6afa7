"""Bursts: a Poisson process that alternates between a high and a low rate."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from workbench.simulation.workloads.arrivals import Times
from workbench.simulation.workloads.rated import Streamed
from workbench.simulation.workloads.streams import cumulative_times

_CYCLES = 512  # cycles of a high and a low period, drawn at a time

Period = Annotated[  # at most a day: a larger number is in a wrong unit
    float, Field(ge=1, le=86_400_000, allow_inf_nan=False, strict=True)
]


class Bursts(Streamed):
    """Alternating periods of a high and a low rate; the start is uniform within a cycle."""

    name: ClassVar[str] = "bursts"

    high_ms: Period = Field(description="mean length of a high period, ms")
    low_ms: Period = Field(description="mean length of a low period, ms")
    low_ratio: float = Field(
        default=0.0, ge=0, le=1, strict=True, description="low rate divided by high rate"
    )
    lengths: Literal["exponential", "fixed"] = Field(
        default="exponential", description="distribution of the periods' lengths"
    )

    def _stream(self, rate_rps: float, rng: np.random.Generator, size: int) -> Iterator[Times]:
        """Yield a Poisson process of rate 1, on a clock that counts expected arrivals.

        So neither many arrivals in a period nor many periods without arrivals take memory.
        """
        for_periods, for_gaps = rng.spawn(2)
        blocks = cumulative_times(lambda count: for_gaps.exponential(1.0, count), size)
        periods = self._periods(rate_rps, for_periods)
        block = next(blocks)
        latest_ms = 0.0
        while True:
            expected, ends_ms = next(periods)
            while count := int(np.searchsorted(block, expected[-1], side="right")):
                times_ms = np.interp(block[:count], expected, ends_ms)
                # Between two periods, interpolation may be off by the last digit.
                np.maximum.accumulate(np.maximum(times_ms, latest_ms), out=times_ms)
                latest_ms = float(times_ms[-1])
                yield times_ms
                block = block[count:] if count < block.size else next(blocks)

    def _periods(self, rate_rps: float, rng: np.random.Generator) -> Iterator[tuple[Times, Times]]:
        """Yield the ends of many periods: in expected arrivals until then, and in ms.

        Each pair begins at the end of the last one, the first one at 0.
        """
        cycle_ms = self.high_ms + self.low_ms
        high_rps = rate_rps * cycle_ms / (self.high_ms + self.low_ms * self.low_ratio)
        rates_per_ms = np.array([high_rps, high_rps * self.low_ratio] * _CYCLES) / 1000.0
        means_ms = np.array([self.high_ms, self.low_ms] * _CYCLES)
        passed_ms = rng.uniform(0.0, cycle_ms)  # of the current cycle at the start
        expected = ends_ms = np.zeros(1)
        while True:
            if self.lengths == "fixed":
                lengths_ms = means_ms.copy()
                lengths_ms[0] -= min(passed_ms, self.high_ms)
                lengths_ms[1] -= max(passed_ms - self.high_ms, 0.0)
            else:  # the rest of an exponential period is distributed as a whole one
                lengths_ms = rng.exponential(means_ms)
                lengths_ms[0] *= passed_ms < self.high_ms
            passed_ms = 0.0
            ends_ms = np.cumsum(np.concatenate((ends_ms[-1:], lengths_ms)))
            expected = np.cumsum(np.concatenate((expected[-1:], lengths_ms * rates_per_ms)))
            yield expected, ends_ms
