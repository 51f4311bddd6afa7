"""Profiles of any size that look measured: seeded, noisy, hence not monotone."""

import random
from collections.abc import Callable, Sequence
from itertools import product

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from tests.search.documents import Row, catalogue

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
GRID = tuple(product(BATCHES, (1, 2, 3, 4, 6, 8), range(14, 101, 2)))
NOISE = 0.05
PRICES = Prices()


def rows(chance: random.Random, count: int, digits: int) -> list[Row]:
    """So many configurations of one function; latencies of at least 1 ms, with so many digits.

    Their formula is that of `workbench.profiles.generated`, under log-normal noise.
    """
    t0_ms, phi = chance.uniform(50, 1000), chance.uniform(0.1, 0.3)
    alpha, beta, gamma = (chance.uniform(*ends) for ends in ((0.5, 0.8), (0.5, 0.7), (0.3, 0.8)))
    listed = []
    for batch, cpu, percent in chance.sample(GRID, count):
        ratio = phi * batch / cpu**alpha + (1 - phi) * batch**beta / (percent / 14) ** gamma
        latency_ms = round(t0_ms * ratio * chance.lognormvariate(0, NOISE), digits)
        listed.append((batch, cpu, percent, max(1.0, latency_ms)))
    return listed


def unbeaten_rows(chance: random.Random, count: int, digits: int) -> list[Row]:
    """The same, none beaten by another one: whatever is paid more an hour is faster."""
    t0_ms, power = chance.uniform(50, 1000), chance.uniform(0.3, 0.9)
    alone = [(cpu, percent) for batch, cpu, percent in GRID if batch == 1]
    hourly = {
        point: PRICES.vcpu_hour_dollars * point[0] + PRICES.gpu_hour_dollars * point[1]
        for point in alone
    }
    least = min(hourly.values())
    return [
        (1, cpu, percent, round(t0_ms * (least / hourly[cpu, percent]) ** power, digits))
        for cpu, percent in chance.sample(alone, count)
    ]


def documents(
    after: Sequence[Sequence[int]],
    configurations: int,
    seed: int = 0,
    *,
    digits: int = 3,
    rows_of: Callable[[random.Random, int, int], list[Row]] = rows,
) -> Catalogue:
    """Workflow "w" of this shape, whose stages s0, s1, ... have a function each."""
    chance = random.Random(seed)
    listed = [rows_of(chance, configurations, digits) for _ in after]
    return catalogue(after, listed, slo_ms=60_000.0)
