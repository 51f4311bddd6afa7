"""How long a call takes on a machine that has other things to do: several rounds, two numbers."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

ROUND_US = (
    500.0  # a round is as many calls as last so long: the clock's own cost is spread over them
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one call, over the rounds; microseconds."""

    median_us: float
    least_us: float

    @classmethod
    def of(cls, call: Callable[[], object], rounds: int = 101) -> Self:
        """After one call that does not count."""
        call()
        calls = max(1, int(ROUND_US / max(_round_us(call, 1), 0.1)))
        times_us = [_round_us(call, calls) for _ in range(rounds)]
        return cls(statistics.median(times_us), min(times_us))


def _round_us(call: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) * 1e6 / calls
