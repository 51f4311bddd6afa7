# ruff: noqa: FBT001 - kernels take plain arrays, and no keywords in compiled code
"""Kernels over Pareto frontiers: joining two in series or in parallel, and ranking by one.

A frontier is two parallel arrays: ``time_ms`` strictly rising, ``cost`` (dollars per request)
strictly falling; every point is a completion that can be had. All kernels write into arrays of the
caller and return how many points they wrote, or OVERFLOW where the arrays are too short.

They live in one module, because Numba's cache does not see an edit of a callee elsewhere.
"""

import numpy as np
from numba import b1, f8, i8, njit, void

from scheduler.search.arrays import Floats, Integers

OVERFLOW = -1
ROUNDING = 1e-12  # relative; sums of 32 doubles differ by less than 1e-14 with their order

_F = f8[::1]
_I = i8[::1]


@njit(void(_F, _I, i8), nogil=True, cache=True)
def _sift_down(key: Floats, row: Integers, size: int) -> None:
    """Restore the heap of (key, row) after its root was replaced."""
    at = 0
    root_key = key[0]
    root_row = row[0]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and key[child + 1] < key[child]:
            child += 1
        if key[child] >= root_key:
            break
        key[at] = key[child]
        row[at] = row[child]
        at = child
    key[at] = root_key
    row[at] = root_row


@njit(i8(_F, _F, i8, f8, f8), nogil=True, cache=True)
def _append(out_ms: Floats, out_cost: Floats, count: int, time_ms: float, cost: float) -> int:
    """Add a cheaper point that is not earlier; return the new length, or OVERFLOW."""
    at = count
    if count > 0 and time_ms == out_ms[count - 1]:
        at -= 1
    if at >= out_ms.shape[0]:
        return OVERFLOW
    out_ms[at] = time_ms
    out_cost[at] = cost
    return at + 1


@njit(i8(_F, i8, f8, f8), nogil=True, cache=True)
def _first_below(cost: Floats, start: int, more: float, floor: float) -> int:
    """The first index from ``start`` on where ``more + cost`` is below ``floor``."""
    low = start
    high = cost.shape[0]
    while low < high:
        middle = (low + high) // 2
        if more + cost[middle] < floor:
            high = middle
        else:
            low = middle + 1
    return low


@njit(i8(_F, _F, _F, _F, f8, _F, _I, _I, _F, _F), nogil=True, cache=True)
def join_series(
    left_ms: Floats,
    left_cost: Floats,
    right_ms: Floats,
    right_cost: Floats,
    ratio: float,
    key: Floats,
    row: Integers,
    column: Integers,
    out_ms: Floats,
    out_cost: Floats,
) -> int:
    """The frontier of one thing after another: times add, costs add.

    A merge of the rows ``left[i] + right`` by time. A row whose next points cost no less than what
    is already out is moved on by binary search, so the work follows the points that survive rather
    than all pairs.

    - left_ms, left_cost: (n,) a frontier; make it the shorter one. right_ms, right_cost: (m,).
    - ratio: 0 for the exact frontier. Above, a point is kept only if it costs less than the one
      before it by that ratio, and the last: so at any time the answer is at most 1 + ratio times
      the true cost.
    - key, row, column: (n,) scratch: a heap of rows by time, and the next point of each.
    - out_ms, out_cost: the result.
    """
    size = left_ms.shape[0]
    for i in range(size):
        key[i] = left_ms[i] + right_ms[0]  # rising, hence a heap already
        row[i] = i
        column[i] = 0
    count = 0
    floor = np.inf
    while size > 0:
        i = row[0]
        cost = left_cost[i] + right_cost[column[i]]
        if cost < floor:
            count = _append(out_ms, out_cost, count, key[0], cost)
            if count == OVERFLOW:
                return OVERFLOW
            floor = cost / (1.0 + ratio)
        column[i] = _first_below(right_cost, column[i] + 1, left_cost[i], floor)
        if column[i] < right_ms.shape[0]:
            key[0] = left_ms[i] + right_ms[column[i]]
        else:
            size -= 1
            key[0] = key[size]
            row[0] = row[size]
        if size > 0:
            _sift_down(key, row, size)
    cheapest = left_cost[-1] + right_cost[-1]
    if cheapest < out_cost[count - 1]:  # thinned away; the cheapest end always stays
        count = _append(out_ms, out_cost, count, left_ms[-1] + right_ms[-1], cheapest)
    return count


@njit(i8(_F, i8, f8), nogil=True, cache=True)
def _last_until(time_ms: Floats, start: int, until_ms: float) -> int:
    """The last index from ``start`` on whose time is not after ``until_ms``; or ``start``."""
    at = start
    while at + 1 < time_ms.shape[0] and time_ms[at + 1] <= until_ms:
        at += 1
    return at


@njit(i8(_F, _F, _F, _F, f8, _F, _F), nogil=True, cache=True)
def join_parallel(
    left_ms: Floats,
    left_cost: Floats,
    right_ms: Floats,
    right_cost: Floats,
    ratio: float,
    out_ms: Floats,
    out_cost: Floats,
) -> int:
    """The frontier of two things side by side: the longer time, the sum of the costs.

    At each time of either, both take their cheapest point until then. Arguments as in
    `join_series`.
    """
    rows = left_ms.shape[0]
    columns = right_ms.shape[0]
    time = max(left_ms[0], right_ms[0])
    i = 0
    j = 0
    count = 0
    floor = np.inf
    while True:
        i = _last_until(left_ms, i, time)
        j = _last_until(right_ms, j, time)
        cost = left_cost[i] + right_cost[j]
        last = i + 1 == rows and j + 1 == columns
        if cost < floor or (last and cost < out_cost[count - 1]):
            count = _append(out_ms, out_cost, count, time, cost)
            floor = cost / (1.0 + ratio)
        if last or count == OVERFLOW:
            return count
        time = np.inf
        if i + 1 < rows:
            time = left_ms[i + 1]
        if j + 1 < columns:
            time = min(time, right_ms[j + 1])


@njit(i8(_F, f8, f8), nogil=True, cache=True)
def _cheapest_within(tail_ms: Floats, stage_ms: float, budget_ms: float) -> int:
    """The last point that fits the budget after ``stage_ms``; the first one must fit."""
    low = 0
    high = tail_ms.shape[0]
    while high - low > 1:
        middle = (low + high) // 2
        if stage_ms + tail_ms[middle] <= budget_ms:
            low = middle
        else:
            high = middle
    return low


@njit(void(_I, _F, _F, i8, i8, f8, f8, _I), nogil=True, cache=True)
def _insert(
    out_index: Integers,
    out_main: Floats,
    out_other: Floats,
    found: int,
    index: int,
    main: float,
    other: float,
    tie: Integers,
) -> None:
    """Put an entry into the list of the K least by (main, other, tie); one too many drops out."""
    k = out_index.shape[0]
    at = found
    while at > 0:
        before = at - 1
        if out_main[before] < main:
            break
        if out_main[before] == main:
            if out_other[before] < other:
                break
            if out_other[before] == other and tie[out_index[before]] < tie[index]:
                break
        if at < k:
            out_index[at] = out_index[before]
            out_main[at] = out_main[before]
            out_other[at] = out_other[before]
        at = before
    if at < k:
        out_index[at] = index
        out_main[at] = main
        out_other[at] = other


@njit(
    i8(_F, _F, _F, _I, _I, _I, _I, _I, i8, i8, i8, i8, f8, _F, _F, f8, b1, _I, _F, _F, _I),
    nogil=True,
    cache=True,
)
def rank_by_frontier(
    time_ms: Floats,
    latency_ms: Floats,
    cost: Floats,
    batch: Integers,
    cpu: Integers,
    gpu_percent: Integers,
    memory_mib: Integers,
    tie: Integers,
    batch_max: int,
    cpu_max: int,
    gpu_percent_max: int,
    memory_mib_max: int,
    interval_ms: float,
    tail_ms: Floats,
    tail_cost: Floats,
    budget_ms: float,
    fastest: bool,
    out_index: Integers,
    out_ms: Floats,
    out_cost: Floats,
    counts: Integers,
) -> int:
    """The K best configurations of the stage at hand, each with its best completion.

    The stage at hand precedes all stages left, so the best completion through configuration i is
    the cheapest point of the tail's frontier within ``budget - time[i]``: A* whose h is exact and
    which therefore never leaves its first depth. Blade 1 drops a configuration that even the
    fastest tail does not save; blade 2, the list being sorted by cost, drops all from the first one
    on that even the cheapest tail does not bring among the K best.

    - time_ms, latency_ms, cost, batch, cpu, gpu_percent, memory_mib: (n,) of the stage at hand, by
      rising cost: the time to plan with, and the mean time, by which it keeps up with a rate.
    - tie: (n,) the order among equals.
    - batch_max, cpu_max, gpu_percent_max, memory_mib_max: ceilings.
    - interval_ms: 0; or the time between arrivals, for a pod that waits for a batch to fill and
      must keep up.
    - tail_ms, tail_cost: (m,) frontier of all that follows.
    - budget_ms: time for the stage at hand and the tail; inf for none.
    - fastest: rank by the fastest completion instead, whatever the budget.
    - out_index, out_ms, out_cost: (K,) the answer: configuration, time and cost of the path.
    - counts: (4,) set to: expanded, cut by time, cut by cost, within the ceilings.

    Returns how many were found.
    """
    k = out_index.shape[0]
    found = 0
    counts[:] = 0
    for i in range(cost.shape[0]):
        if (
            batch[i] > batch_max
            or cpu[i] > cpu_max
            or gpu_percent[i] > gpu_percent_max
            or memory_mib[i] > memory_mib_max
        ):
            continue
        if interval_ms > 0.0 and batch[i] * interval_ms * (1.0 + ROUNDING) < latency_ms[i]:
            continue
        counts[3] += 1
        stage_ms = time_ms[i] + (batch[i] - 1) * interval_ms
        if fastest:
            counts[0] += 1
            main = stage_ms + tail_ms[0]
            if found < k or main <= out_ms[k - 1]:
                other = cost[i] + tail_cost[0]
                _insert(out_index, out_ms, out_cost, found, i, main, other, tie)
                found = min(found + 1, k)
            continue
        if found == k and cost[i] + tail_cost[-1] > out_cost[k - 1]:
            counts[2] += cost.shape[0] - i
            break
        if stage_ms + tail_ms[0] > budget_ms:
            counts[1] += 1
            continue
        counts[0] += 1
        point = _cheapest_within(tail_ms, stage_ms, budget_ms)
        main = cost[i] + tail_cost[point]
        if found < k or main <= out_cost[k - 1]:
            other = stage_ms + tail_ms[point]
            _insert(out_index, out_cost, out_ms, found, i, main, other, tie)
            found = min(found + 1, k)
    return found
