"""CPU time of a call: median and minimum over several rounds, on a machine with other load."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

# A round is a number of calls that take this long together, so that the clock costs little.
ROUND_US = 500.0


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU time of one call over all rounds, in microseconds."""

    median_us: float
    minimum_us: float

    @classmethod
    def of(cls, call: Callable[[], object], rounds: int = 101) -> Self:
        """Measure a call, after one that does not count."""
        call()
        calls = max(1, int(ROUND_US / max(_round_us(call, 1), 0.1)))
        times_us = [_round_us(call, calls) for _ in range(rounds)]
        return cls(statistics.median(times_us), min(times_us))


def _round_us(call: Callable[[], object], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - began) * 1e6 / calls
