"""Prices of time: dollars per ms of each stage, for any time of all stages together.

With prices p_v that form a flow of F through the order, no completion within T ms costs less than
``sum over stages of min(cost + p_v time) - F T``. `price_kernels` finds the prices that maximise
this bound for each T.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.search.frontiers.arrays import Floats, Integers, Matrix
from scheduler.search.frontiers.frontier import Frontier
from scheduler.search.reduction.event_network import SINK, SOURCE
from scheduler.search.reduction.price_kernels import time_prices


class TimePrices(NamedTuple):
    """Rows of prices: row i is the best for times of at least ``row_ms[i]``, which falls with i.

    Attributes:
        row_ms: (r,) ms.
        price: (r, slots) dollars per ms of the frontier in each slot.
        flow: (r,) dollars per ms of all stages together.
    """

    row_ms: Floats
    price: Matrix
    flow: Floats


def prices_of_time(
    arcs: Mapping[int, tuple[int, int]], frontiers: Sequence[Frontier]
) -> TimePrices:
    """Compute the rows for a network of events; an arc is a slot of ``frontiers``."""
    events = {event for arc in arcs.values() for event in arc} - {SOURCE, SINK}
    node = {SOURCE: 0, SINK: len(events) + 1} | {e: i for i, e in enumerate(sorted(events), 1)}
    rows = [
        (node[tail], node[head], slot, *segment)
        for slot, (tail, head) in arcs.items()
        for segment in _segments(frontiers[slot])
    ]
    tail, head, slot = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    length_ms, capacity = (np.array([row[at] for row in rows], np.float64) for at in (3, 4))
    size = 4 * len(rows)  # one segment per point of a hull, and some where flows are redirected
    row_ms, price = np.empty(size), Matrix(np.empty((size, len(frontiers))))
    count = time_prices(tail, head, slot, length_ms, capacity, row_ms, price)
    first = [slot for slot, (tail, _) in arcs.items() if tail == SOURCE]
    return TimePrices(
        row_ms[:count].copy(), Matrix(price[:count].copy()), price[:count, first].sum(axis=1)
    )


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


def _segments(frontier: Frontier) -> list[tuple[float, float]]:
    """List the segments of a hull, cheapest first: longer time, increase of the slope."""
    hull = lower_hull(frontier)
    time_ms, cost = frontier.time_ms[hull][::-1], frontier.cost[hull][::-1]
    slopes = np.concatenate([[0.0], np.diff(cost) / -np.diff(time_ms), [np.inf]])
    return list(zip(time_ms.tolist(), np.diff(slopes).tolist(), strict=True))
