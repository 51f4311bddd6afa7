"""Bursts: a Poisson process whose rate is high for a while, then low for a while."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from workbench.simulation.workloads.arrivals import Times
from workbench.simulation.workloads.rated import Streamed
from workbench.simulation.workloads.streams import added_up

_CYCLES = 512  # a high and a low period each, drawn at a time

Period = Annotated[  # at most a day: beyond it the number is a slip of the unit
    float, Field(ge=1, le=86_400_000, allow_inf_nan=False, strict=True)
]


class Bursts(Streamed):
    """Periods of a high and of a low rate take turns; at the start it is anywhere in them."""

    name: ClassVar[str] = "bursts"

    high_ms: Period = Field(description="how long the rate is high, ms, on average")
    low_ms: Period = Field(description="how long the rate is low, ms, on average")
    low_ratio: float = Field(
        default=0.0, ge=0, le=1, strict=True, description="the low rate over the high one"
    )
    lengths: Literal["exponential", "fixed"] = Field(
        default="exponential", description="how the lengths of the periods are distributed"
    )

    def _stream(self, rate_rps: float, chance: np.random.Generator, size: int) -> Iterator[Times]:
        """A Poisson process of rate 1, on a clock that counts the arrivals to be expected.

        So neither many arrivals in a period nor many periods without any take memory.
        """
        for_periods, for_gaps = chance.spawn(2)
        blocks = added_up(lambda count: for_gaps.exponential(1.0, count), size)
        periods = self._periods(rate_rps, for_periods)
        block = next(blocks)
        latest_ms = 0.0
        while True:
            expected, ends_ms = next(periods)
            while count := int(np.searchsorted(block, expected[-1], side="right")):
                times_ms = np.interp(block[:count], expected, ends_ms)
                # Where two periods meet, interpolation may be off by the last digit.
                np.maximum.accumulate(np.maximum(times_ms, latest_ms), out=times_ms)
                latest_ms = float(times_ms[-1])
                yield times_ms
                block = block[count:] if count < block.size else next(blocks)

    def _periods(
        self, rate_rps: float, chance: np.random.Generator
    ) -> Iterator[tuple[Times, Times]]:
        """Of many periods the ends: in arrivals to be expected by then, and in ms.

        Each pair begins where the last one ended, the first one at 0.
        """
        cycle_ms = self.high_ms + self.low_ms
        high_rps = rate_rps * cycle_ms / (self.high_ms + self.low_ms * self.low_ratio)
        rates_per_ms = np.array([high_rps, high_rps * self.low_ratio] * _CYCLES) / 1000.0
        means_ms = np.array([self.high_ms, self.low_ms] * _CYCLES)
        passed_ms = chance.uniform(0.0, cycle_ms)  # of the cycle under way at the start
        expected = ends_ms = np.zeros(1)
        while True:
            if self.lengths == "fixed":
                lengths_ms = means_ms.copy()
                lengths_ms[0] -= min(passed_ms, self.high_ms)
                lengths_ms[1] -= max(passed_ms - self.high_ms, 0.0)
            else:  # what is left of such a period is as long as a whole one
                lengths_ms = chance.exponential(means_ms)
                lengths_ms[0] *= passed_ms < self.high_ms
            passed_ms = 0.0
            ends_ms = np.cumsum(np.concatenate((ends_ms[-1:], lengths_ms)))
            expected = np.cumsum(np.concatenate((expected[-1:], lengths_ms * rates_per_ms)))
            yield expected, ends_ms
