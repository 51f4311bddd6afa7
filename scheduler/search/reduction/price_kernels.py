"""Prices of time in a DAG of stages: the time-cost curve of its relaxation, computed as flows.

Relax each stage to the lower convex hull of its frontier, so that it may also run between two
configurations. The minimum cost is then a convex, piecewise linear function of the time for all
stages. Its slopes are a flow through the DAG: the price of one ms, shared among the stages of the
critical paths (J. E. Kelley, "Critical-path planning and scheduling", 1961; D. R. Fulkerson, "A
network flow computation for project cost curves", 1961). The curve starts with every stage at its
cheapest; each longest path of the residual network that has capacity gives the next segment.

Any such flow bounds the true cost from below, rounded or not: with f_v through stage v, F in total,
and a completion within T ms, ``sum f_v t_v <= F T``, because a flow is a sum of paths.
"""

import numpy as np
from numba import f8, i8, njit

from scheduler.search.frontiers.arrays import Floats, Integers, Matrix

_F = f8[::1]
_I = i8[::1]
# Relative to the longest path, a smaller difference is no improvement; relative to the flow, a
# smaller capacity is what subtraction left of none.
ROUNDING = 1e-12


@njit(i8(_I, _I, _F, _F, _F, _F, _I, f8, f8), nogil=True, cache=True)
def _longest_paths(
    tail: Integers,
    head: Integers,
    length_ms: Floats,
    capacity: Floats,
    flow: Floats,
    distance_ms: Floats,
    arrived_by: Integers,
    step_ms: float,
    residue_dollars_per_ms: float,
) -> int:
    """Run Bellman-Ford over the residual network from node 0; return the number of rounds.

    An arc has capacity where it has more than ``residue_dollars_per_ms`` in either direction.
    ``arrived_by`` holds the last arc of each node's path: a is arc a, -2 - a is arc a backwards.
    """
    nodes = distance_ms.shape[0]
    distance_ms[:] = -np.inf
    distance_ms[0] = 0.0
    arrived_by[:] = -1
    for rounds in range(nodes):
        changed = False
        for a in range(tail.shape[0]):
            u, w = tail[a], head[a]
            if (
                capacity[a] > residue_dollars_per_ms
                and distance_ms[u] + length_ms[a] > distance_ms[w] + step_ms
            ):
                distance_ms[w] = distance_ms[u] + length_ms[a]
                arrived_by[w] = a
                changed = True
            if (
                flow[a] > residue_dollars_per_ms
                and distance_ms[w] - length_ms[a] > distance_ms[u] + step_ms
            ):
                distance_ms[u] = distance_ms[w] - length_ms[a]
                arrived_by[u] = -2 - a
                changed = True
        if not changed:
            return int(rounds)
    return int(nodes)


@njit(i8(_I, _I, _I, _F, _F, _F, f8[:, ::1]), nogil=True, cache=True)
def time_prices(
    tail: Integers,
    head: Integers,
    slot: Integers,
    length_ms: Floats,
    capacity: Floats,
    out_ms: Floats,
    out_price: Matrix,
) -> int:
    """Compute the segments of the curve, from the cheapest completion to the fastest.

    - tail, head: (a,) arcs between nodes; node 0 is the start, the last node the end. A slot has
      one arc for each segment of its hull, parallel to one another.
    - slot: (a,) the slot of an arc: a stage, or stages that act as one.
    - length_ms: (a,) of the arc: the longer end of its segment.
    - capacity: (a,) dollars per ms: the slope of the arc's segment minus that of the previous one;
      inf for the fastest point of a slot. The kernel changes it.
    - out_ms: (n,) by falling time: row r is valid for times from out_ms[r] up to out_ms[r - 1].
    - out_price: (n, slots) dollars per ms, the flow through each slot on that segment. Row 0 is
      zero: beyond the time of the cheapest completion, time has no price.

    Returns the number of segments written: all of them, or the first n.
    """
    nodes = head.max() + 1
    flow = np.zeros(tail.shape[0])
    distance_ms = np.empty(nodes)
    arrived_by = np.empty(nodes, np.int64)
    out_price[0, :] = 0.0
    step_ms = residue_dollars_per_ms = 0.0
    segment = 0
    while True:
        rounds = _longest_paths(
            tail,
            head,
            length_ms,
            capacity,
            flow,
            distance_ms,
            arrived_by,
            step_ms,
            residue_dollars_per_ms,
        )
        out_ms[segment] = distance_ms[nodes - 1]
        step_ms = distance_ms[nodes - 1] * ROUNDING
        amount = np.inf
        at = nodes - 1
        while at != 0 and rounds < nodes:
            a = arrived_by[at]
            amount = min(amount, capacity[a] if a >= 0 else flow[-2 - a])
            at = tail[a] if a >= 0 else head[-2 - a]
        if amount == np.inf or segment + 1 == out_ms.shape[0]:
            return segment + 1
        at = nodes - 1
        while at != 0:
            a = arrived_by[at]
            if a >= 0:
                flow[a] += amount
                capacity[a] -= amount
                at = tail[a]
            else:
                flow[-2 - a] -= amount
                capacity[-2 - a] += amount
                at = head[-2 - a]
        residue_dollars_per_ms += amount * ROUNDING
        segment += 1
        out_price[segment, :] = 0.0
        for a in range(tail.shape[0]):
            out_price[segment, slot[a]] += flow[a]
