"""When which workflow is asked for: the loads of the ESG paper's evaluation, as recalled."""

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import count

from scheduler.model.documents import Workflow
from workbench.demo.requests import DemoRequest


class Load(StrEnum):
    """How often requests arrive."""

    HEAVY = "heavy"
    NORMAL = "normal"
    LIGHT = "light"

    @property
    def interval_ms(self) -> tuple[float, float]:
        """Shortest and longest time between two requests; uniform between them."""
        return _INTERVALS_MS[self]


_INTERVALS_MS = {Load.HEAVY: (10, 16.8), Load.NORMAL: (20, 33.6), Load.LIGHT: (40, 67.2)}


def arrivals(
    workflows: Sequence[Workflow], load: Load, *, start: float, seconds: float, rng: random.Random
) -> Iterator[DemoRequest]:
    """Requests for workflows at random, from ``start`` (seconds since the epoch) on."""
    shortest_ms, longest_ms = load.interval_ms
    arrived = start
    for number in count():
        arrived += rng.uniform(shortest_ms, longest_ms) / 1000
        if arrived >= start + seconds:
            return
        yield DemoRequest(f"request-{number:05d}", rng.choice(workflows), arrived)
