"""Pareto frontiers of (time, cost): all efficient ways to run a set of stages."""

from dataclasses import dataclass

import numpy as np

from scheduler.search.frontiers.arrays import Floats
from scheduler.search.frontiers.reduction_arrays import PARALLEL, ROUNDING, SERIES
from scheduler.search.frontiers.reduction_kernels import join

POINTS_MAX = 32_768  # half a MiB per frontier; 5 stages x 256 configurations need about 4,000
EQUAL_RATIO = 1.0 + 4.0 * ROUNDING  # maximum ratio of costs that differ by rounding alone
_DIVISOR_MIN = 1e-300  # dollars; any cost divided by it is finite


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Times strictly rising, costs strictly falling; each point is a real completion.

    Attributes:
        time_ms, cost: (n,) milliseconds, dollars per request.
        epsilon: relative error: at any time, the cost of the frontier is at most ``1 + epsilon``
            times the minimum; 0 if the frontier is exact, above 0 if it was thinned to POINTS_MAX
            points.
    """

    time_ms: Floats
    cost: Floats
    epsilon: float = 0.0


EMPTY = Frontier(np.zeros(1), np.zeros(1))  # of no stages: no time, no cost
NEVER = Frontier(np.full(1, np.inf), np.zeros(1))  # of stages that cannot be in time


def cost_ratios(cost: Floats, minimum: Floats) -> Floats:
    """Return cost / minimum, or 1 where the cost does not exceed the minimum.

    Prices may be 0: for a minimum of 0 the ratio is very large, and finite.
    """
    return np.where(cost > minimum, cost / np.maximum(minimum, _DIVISOR_MIN), 1.0)


def max_cost_ratio(cost: Floats, minimum: Floats) -> float:
    """Return the maximum of cost / minimum; 1 if they differ by rounding alone or are empty."""
    ratio = float(cost_ratios(cost, minimum).max(initial=1.0))
    return ratio if ratio > EQUAL_RATIO else 1.0


def pareto(time_ms: Floats, cost: Floats) -> Frontier:
    """Return the frontier of points in any order."""
    order = np.lexsort((cost, time_ms))
    times, costs = time_ms[order], cost[order]
    keep = np.ones(len(costs), np.bool_)
    keep[1:] = costs[1:] < np.minimum.accumulate(costs)[:-1]
    return Frontier(np.ascontiguousarray(times[keep]), np.ascontiguousarray(costs[keep]))


def in_series(first: Frontier, second: Frontier, points_max: int = POINTS_MAX) -> Frontier:
    """Join two frontiers that run one after the other; thin the result to ``points_max`` points."""
    size = len(first.time_ms) * len(second.time_ms) + 1
    return _joined(SERIES, first, second, min(points_max, size))


def in_parallel(first: Frontier, second: Frontier, points_max: int = POINTS_MAX) -> Frontier:
    """Join two frontiers that run in parallel; thin the result to ``points_max`` points."""
    size = len(first.time_ms) + len(second.time_ms)
    return _joined(PARALLEL, first, second, min(points_max, size))


def _joined(kind: int, first: Frontier, second: Frontier, size: int) -> Frontier:
    rows = min(len(first.time_ms), len(second.time_ms))
    heap = np.empty(rows), np.empty(rows, np.int64), np.empty(rows, np.int64)
    time_ms, cost, ratio = np.empty(size), np.empty(size), np.zeros(1)
    parts = first.time_ms, first.cost, second.time_ms, second.cost
    count = join(kind, *parts, *heap, time_ms, cost, ratio)
    epsilon = (1.0 + max(first.epsilon, second.epsilon)) * (1.0 + ratio[0]) - 1.0
    return Frontier(time_ms[:count].copy(), cost[:count].copy(), float(epsilon))
