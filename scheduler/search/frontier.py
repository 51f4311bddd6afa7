"""Pareto frontiers of (time, cost): what a set of stages can be had for, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.search.arrays import Floats, Integers
from scheduler.search.frontier_kernels import OVERFLOW, join_parallel, join_series

POINTS_MAX = 32_768  # half a MiB a frontier; 5 stages x 256 configurations need about 4,000
_NEARLY_NOTHING = 1e-300  # dollars; whatever is divided by it is still a number
THINNING_MIN = 1e-6  # relative cost; the first attempt where the exact frontier is too long


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Times strictly rising, costs strictly falling; each point is a completion that can be had.

    Attributes:
        time_ms, cost: (n,) milliseconds, dollars per request.
        epsilon: at any time, the cost told is at most ``1 + epsilon`` times the least; 0 where the
            frontier is exact, more where it had to be thinned to POINTS_MAX points.
    """

    time_ms: Floats
    cost: Floats
    epsilon: float = 0.0


NOTHING = Frontier(np.zeros(1), np.zeros(1))  # no stage left: no time, no cost


def times_over(cost: Floats | float, least: Floats | float) -> Floats:
    """How many times the least a cost is: 1 where it is no more than that.

    What costs nothing (prices may be 0) is exceeded by a number that is very large, and finite.
    """
    return np.where(cost > least, cost / np.maximum(least, _NEARLY_NOTHING), 1.0)


def pareto(time_ms: Floats, cost: Floats) -> Frontier:
    """The frontier of single points in any order."""
    order = np.lexsort((cost, time_ms))
    times, costs = time_ms[order], cost[order]
    keep = np.ones(len(costs), np.bool_)
    keep[1:] = costs[1:] < np.minimum.accumulate(costs)[:-1]
    return Frontier(np.ascontiguousarray(times[keep]), np.ascontiguousarray(costs[keep]))


def in_series(left: Frontier, right: Frontier, points_max: int = POINTS_MAX) -> Frontier:
    """One after the other; thinned where it would have more than ``points_max`` points."""
    short, long = sorted((left, right), key=lambda f: len(f.time_ms))
    rows = len(short.time_ms)
    scratch: tuple[Floats, Integers, Integers] = (
        np.empty(rows, np.float64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
    )
    room = min(points_max, rows * len(long.time_ms) + 1)
    out_ms, out_cost = np.empty(room, np.float64), np.empty(room, np.float64)
    ratio = 0.0
    while True:
        count = join_series(
            short.time_ms, short.cost, long.time_ms, long.cost, ratio, *scratch, out_ms, out_cost
        )
        if count != OVERFLOW:
            return _result((left, right), ratio, out_ms[:count], out_cost[:count])
        ratio = max(THINNING_MIN, 4.0 * ratio)


def in_parallel(left: Frontier, right: Frontier, points_max: int = POINTS_MAX) -> Frontier:
    """Side by side; thinned where it would have more than ``points_max`` points."""
    room = min(points_max, len(left.time_ms) + len(right.time_ms))
    out_ms, out_cost = np.empty(room, np.float64), np.empty(room, np.float64)
    ratio = 0.0
    while True:
        count = join_parallel(
            left.time_ms, left.cost, right.time_ms, right.cost, ratio, out_ms, out_cost
        )
        if count != OVERFLOW:
            return _result((left, right), ratio, out_ms[:count], out_cost[:count])
        ratio = max(THINNING_MIN, 4.0 * ratio)


def _result(parts: Sequence[Frontier], ratio: float, time_ms: Floats, cost: Floats) -> Frontier:
    epsilon = (1.0 + max(part.epsilon for part in parts)) * (1.0 + ratio) - 1.0
    return Frontier(time_ms.copy(), cost.copy(), epsilon)
