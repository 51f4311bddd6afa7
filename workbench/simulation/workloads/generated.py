"""A generated trace with the shape of Azure Functions: counts per minute, not measured.

It ships with the project so that no data of others has to. Its defaults follow a sample of the
Azure Functions 2019 data set, 100 functions over the 480 minutes from 8:00 on
(AzurePublicDataset, CC-BY, through vhive-serverless/invitro). Facts of that sample:

- It has 339,657 requests, 708 a minute. The most popular function has 80 % of them, the ten most
  popular 97 %; the median function has 48 in those eight hours. Over ranks, counts fall about as
  rank^-2.6.
- 36 functions have a fixed period: 9 every minute, 14 every 5 minutes, 6 every 10 or 15; mostly at
  multiples of it since midnight, so that their spikes coincide. Functions with a period above one
  minute have at most 79 requests at a time.
- 13 functions have bursts, in a sixth of the minutes; a burst lasts about 2 minutes.
- From 8:00 to 16:00 the load rises by 27 %. The most popular function's means over half an hour
  vary by 9 %, and around them its minutes vary as Poisson counts do.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from workbench.simulation.workloads.counts import Counted, Counts
from workbench.simulation.workloads.streams import generator_of

_DAY = 1440  # minutes
_MEAN = 708.0  # requests per minute, before timers are rounded
_PERIODS = (1, 5, 15, 60)  # minutes between a timer's spikes
_PERIOD_SHARES = (0.3, 0.45, 0.15, 0.1)
_SPIKE_MAX = 80  # requests, of a timer with a period above one minute
_BURST_MINUTES, _PAUSE_MINUTES = 2, 10  # means
_SWAY_MINUTES = 30  # between two independent levels of a steady function
_SWAY_RATIO = 0.09
_PEAK_MINUTE = 1020  # 17:00


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTrace:
    """The trace, generated function by function whenever it is read.

    Attributes:
        count: number of functions.
        minutes: length of the trace, from midnight on.
        exponent: exponent of popularity: rank r has about r**-exponent of the first rank's
            requests.
        timer_ratio: fraction of functions with a fixed period.
        bursty_ratio: fraction of functions with bursts.
        diurnal_ratio: relative excess of the load over its mean at the peak.
        seed: seed of the whole trace.
    """

    count: int
    minutes: int
    exponent: float
    timer_ratio: float
    bursty_ratio: float
    diurnal_ratio: float
    seed: int
    first_minute: int = 0

    def functions(self) -> list[str]:
        """Return the names in the order of popularity."""
        return [f"generated-{rank:05d}" for rank in range(1, self.count + 1)]

    def rows(self) -> Iterator[tuple[str, Counts]]:
        """Implement `Trace.rows`."""
        popularity = np.arange(1.0, self.count + 1) ** -self.exponent
        means = _MEAN * popularity / popularity.sum()
        for rank, (name, mean) in enumerate(zip(self.functions(), means.tolist(), strict=True)):
            yield name, self._row(rank, mean, generator_of(np.random.SeedSequence(self.seed), rank))

    def _row(self, rank: int, mean: float, rng: np.random.Generator) -> Counts:
        kind = rng.random()
        if rank and kind < self.timer_ratio:
            return _spikes(mean, self.minutes, rng)
        bursty = rank and kind < self.timer_ratio + self.bursty_ratio
        level = _bursts(self.minutes, rng) if bursty else _sway(self.minutes, rng)
        return rng.poisson(mean * level * self._time_of_day())

    def _time_of_day(self) -> NDArray[np.float64]:
        angle = 2 * np.pi * (np.arange(self.minutes) - _PEAK_MINUTE) / _DAY
        return 1.0 + self.diurnal_ratio * np.cos(angle)


class Generated(Counted):
    """Requests of the generated trace; the seed of the run places them within their minutes."""

    name: ClassVar[str] = "generated"

    functions: int = Field(
        default=100, ge=1, le=10_000, strict=True, description="number of functions"
    )
    days: int = Field(default=1, ge=1, le=14, strict=True, description="length of the trace")
    exponent: float = Field(
        default=2.6,
        ge=0,
        le=10,
        strict=True,
        description="popularity: rank r has r^-exponent of the first rank's requests",
    )
    timer_ratio: float = Field(
        default=0.36,
        ge=0,
        le=1,
        strict=True,
        description="fraction of functions with a fixed period",
    )
    bursty_ratio: float = Field(
        default=0.13, ge=0, le=1, strict=True, description="fraction of functions with bursts"
    )
    diurnal_ratio: float = Field(
        default=0.15,
        ge=0,
        le=1,
        strict=True,
        description="relative excess of the load over its mean at 17:00, and deficit at 5:00",
    )
    trace_seed: int = Field(
        # Among the first dozen, the one whose spread over minutes is nearest to the sample's.
        default=4,
        ge=0,
        strict=True,
        description="seed of the trace",
    )

    def _trace(self) -> GeneratedTrace:
        return GeneratedTrace(
            count=self.functions,
            minutes=self.days * _DAY,
            exponent=self.exponent,
            timer_ratio=self.timer_ratio,
            bursty_ratio=self.bursty_ratio,
            diurnal_ratio=self.diurnal_ratio,
            seed=self.trace_seed,
        )


def _spikes(mean: float, minutes: int, rng: np.random.Generator) -> Counts:
    """Counts of a timer as with cron: at multiples of a period since midnight, at least one."""
    period = int(rng.choice(_PERIODS, p=_PERIOD_SHARES))
    if mean * period > _SPIKE_MAX:
        period = 1
    counts = np.zeros(minutes, np.int64)
    counts[::period] = max(1, round(mean * period))
    return counts


def _sway(minutes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Level around 1 that changes slowly."""
    knots = np.arange(0, minutes + _SWAY_MINUTES, _SWAY_MINUTES)
    return np.interp(np.arange(minutes), knots, np.exp(rng.normal(0.0, _SWAY_RATIO, knots.size)))


def _bursts(minutes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Level that is 0 most of the time and above 1 in bursts; about 1 on average."""
    pauses = rng.geometric(1 / _PAUSE_MINUTES, minutes)
    bursts = rng.geometric(1 / _BURST_MINUTES, minutes)
    high = (_BURST_MINUTES + _PAUSE_MINUTES) / _BURST_MINUTES
    lengths = np.stack([pauses, bursts], axis=1).ravel()
    return np.repeat(np.tile([0.0, high], minutes), lengths)[:minutes]
