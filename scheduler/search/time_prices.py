"""Prices of time for A*: dollars per ms of each stage, for any time after the current stage.

With prices p_v that form a flow of F through the DAG, no completion within T ms costs less than
``sum over stages of min(cost + p_v time) - F T``. `price_kernels` finds the prices that maximise
this bound for each T.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scheduler.search.arrays import Floats, Integers, Matrix
from scheduler.search.dag import Dag, members
from scheduler.search.frontier import Frontier
from scheduler.search.price_kernels import time_prices


class TimePrices(NamedTuple):
    """Rows of prices: row i is the best for times of at least ``row_ms[i]``, which falls with i.

    Attributes:
        row_ms: (r,) ms.
        price: (r, m) dollars per ms of each stage; column 0, the start: of all stages together.
        priced_cost: (r, m) minimum of cost + price x time over a stage's options.
        row_cost: (r,) sums of ``priced_cost``.
    """

    row_ms: Floats
    price: Matrix
    priced_cost: Matrix
    row_cost: Floats


def without_prices(frontiers: Sequence[Frontier]) -> TimePrices:
    """Return one row in which time has no price: each stage at its cheapest."""
    return _priced(np.zeros(1), np.zeros((1, len(frontiers) + 1)), frontiers)


def prices_of_time(dag: Dag, frontiers: Sequence[Frontier]) -> TimePrices:
    """Compute the rows for stages 1.. with these options; stage 0 starts them and takes no time."""
    arcs = _arcs(dag, frontiers)
    tail, head, stage = (np.array([arc[at] for arc in arcs], np.int64) for at in range(3))
    length_ms, capacity = (np.array([arc[at] for arc in arcs], np.float64) for at in (3, 4))
    rows = 4 * len(arcs)  # one segment per point of a hull, and some where flows are redirected
    row_ms, price = np.empty(rows), Matrix(np.empty((rows, len(frontiers) + 1)))
    count = time_prices(tail, head, stage, length_ms, capacity, row_ms, price)
    return _priced(row_ms[:count].copy(), price[:count].copy(), frontiers)


def lower_hull(frontier: Frontier) -> Integers:
    """Return the points of a frontier on its lower convex hull, by rising time."""
    time_ms, cost = frontier.time_ms, frontier.cost
    hull: list[int] = []
    for i in range(len(time_ms)):
        while len(hull) > 1:
            a, b = hull[-2:]
            straight = (cost[i] - cost[a]) * (time_ms[b] - time_ms[a])
            if (cost[b] - cost[a]) * (time_ms[i] - time_ms[a]) < straight:
                break
            hull.pop()
        hull.append(i)
    return np.array(hull, np.int64)


Arc = tuple[int, int, int, float, float]  # tail, head, stage or -1, length in ms, capacity


def _arcs(dag: Dag, frontiers: Sequence[Frontier]) -> list[Arc]:
    """Build the network of `time_prices`: stage v runs from node 2v - 1 to node 2v."""
    end = 2 * len(frontiers) + 1
    arcs: list[Arc] = []
    for v, frontier in enumerate(frontiers, 1):
        arcs.extend((2 * p, 2 * v - 1, -1, 0.0, np.inf) for p in members(dag.before[v]))
        arcs.extend((2 * v - 1, 2 * v, v, *segment) for segment in segments(frontier))
        if dag.following[v] == 0:
            arcs.append((2 * v, end, -1, 0.0, np.inf))
    # The flow through the start is the total flow.
    return [
        (t, h, 0 if t == 0 else stage, length, capacity) for t, h, stage, length, capacity in arcs
    ]


def segments(frontier: Frontier) -> list[tuple[float, float]]:
    """List the segments of a hull, cheapest first: longer time, increase of the slope."""
    hull = lower_hull(frontier)
    time_ms, cost = frontier.time_ms[hull][::-1], frontier.cost[hull][::-1]
    slopes = np.concatenate([[0.0], np.diff(cost) / -np.diff(time_ms), [np.inf]])
    return list(zip(time_ms.tolist(), np.diff(slopes).tolist(), strict=True))


def _priced(row_ms: Floats, price: Floats, frontiers: Sequence[Frontier]) -> TimePrices:
    priced_cost = np.zeros_like(price)
    for v, frontier in enumerate(frontiers, 1):
        by_option = frontier.cost + price[:, v : v + 1] * frontier.time_ms
        priced_cost[:, v] = by_option.min(axis=1)
    return TimePrices(row_ms, Matrix(price), Matrix(priced_cost), priced_cost.sum(axis=1))
