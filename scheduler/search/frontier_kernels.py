"""Kernels over Pareto frontiers: joining two in series or in parallel, and ranking by one.

A frontier is two parallel arrays: ``time_ms`` strictly rising, ``cost`` (dollars per request)
strictly falling; every point is a completion that can be had. All kernels write into arrays of
the caller and return how many points they wrote, or OVERFLOW where the caller's arrays are too short.

They live in one module, because Numba's cache does not see an edit of a callee elsewhere.
"""

import numpy as np
from numba import njit

from scheduler.search.arrays import Floats, Integers

OVERFLOW = -1
ROUNDING = 1e-12  # relative; sums of 32 doubles differ by less than 1e-14 with their order

_SERIES = (
    "int64(f8[::1], f8[::1], f8[::1], f8[::1], f8, f8[::1], i8[::1], i8[::1], f8[::1], f8[::1])"
)
_PARALLEL = "int64(f8[::1], f8[::1], f8[::1], f8[::1], f8, f8[::1], f8[::1])"
_RANK = (
    "int64(f8[::1], f8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], "
    "i8, i8, i8, i8, f8, f8[::1], f8[::1], f8, b1, i8[::1], f8[::1], f8[::1], i8[::1])"
)


@njit("void(f8[::1], i8[::1], i8)", nogil=True, cache=True)
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


@njit(_SERIES, nogil=True, cache=True)
def join_series(
    left_ms: Floats,
    left_cost: Floats,
    right_ms: Floats,
    right_cost: Floats,
    ratio: float,
    key: Floats,
    row: Integers,
    following: Integers,
    out_ms: Floats,
    out_cost: Floats,
) -> int:
    """The frontier of one thing after another: times add, costs add.

    A merge of the rows ``left[i] + right`` by time. A row whose next points cost no less than what
    is already out is moved on by binary search, so the work follows the points that survive rather
    than all pairs. ``ratio`` > 0 thins: a point is kept only if it costs less than the one before
    it by that ratio, so at every time the answer is at most ``1 + ratio`` times the true cost.

    Args:
        left_ms, left_cost: (n,) a frontier; make it the shorter one.
        right_ms, right_cost: (m,) a frontier.
        ratio: 0 for the exact frontier.
        key, row, following: (n,) scratch: a heap of rows by time, and each row's next point.
        out_ms, out_cost: the result.
    """
    size = left_ms.shape[0]
    columns = right_ms.shape[0]
    for i in range(size):
        key[i] = left_ms[i] + right_ms[0]  # rising, hence a heap already
        row[i] = i
        following[i] = 0
    count = 0
    floor = np.inf
    while size > 0:
        i = row[0]
        j = following[i]
        cost = left_cost[i] + right_cost[j]
        if cost < floor:
            if count > 0 and key[0] == out_ms[count - 1]:
                count -= 1
            if count >= out_ms.shape[0]:
                return OVERFLOW
            out_ms[count] = key[0]
            out_cost[count] = cost
            count += 1
            floor = cost / (1.0 + ratio)
        low = j + 1
        high = columns
        while low < high:
            middle = (low + high) // 2
            if left_cost[i] + right_cost[middle] < floor:
                high = middle
            else:
                low = middle + 1
        if low < columns:
            following[i] = low
            key[0] = left_ms[i] + right_ms[low]
        else:
            size -= 1
            key[0] = key[size]
            row[0] = row[size]
        if size > 0:
            _sift_down(key, row, size)
    cheapest = left_cost[-1] + right_cost[-1]
    if cheapest < out_cost[count - 1]:  # thinned away; the cheapest end always stays
        if count >= out_ms.shape[0]:
            return OVERFLOW
        out_ms[count] = left_ms[-1] + right_ms[-1]
        out_cost[count] = cheapest
        count += 1
    return count


@njit(_PARALLEL, nogil=True, cache=True)
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

    Arguments as in `join_series`.
    """
    rows = left_ms.shape[0]
    columns = right_ms.shape[0]
    start = max(left_ms[0], right_ms[0])
    i = 0
    while i + 1 < rows and left_ms[i + 1] <= start:
        i += 1
    j = 0
    while j + 1 < columns and right_ms[j + 1] <= start:
        j += 1
    count = 0
    floor = np.inf
    while True:
        cost = left_cost[i] + right_cost[j]
        last = i + 1 == rows and j + 1 == columns
        if cost < floor or (last and cost < out_cost[count - 1]):
            if count >= out_ms.shape[0]:
                return OVERFLOW
            out_ms[count] = max(left_ms[i], right_ms[j])
            out_cost[count] = cost
            count += 1
            floor = cost / (1.0 + ratio)
        if last:
            return count
        time = np.inf
        if i + 1 < rows:
            time = left_ms[i + 1]
        if j + 1 < columns:
            time = min(time, right_ms[j + 1])
        if i + 1 < rows and left_ms[i + 1] <= time:
            i += 1
        if j + 1 < columns and right_ms[j + 1] <= time:
            j += 1


@njit(_RANK, nogil=True, cache=True)
def rank_by_frontier(
    time_ms: Floats,
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
    which therefore never leaves its first depth. Blade 1 drops a configuration that even the fastest
    tail does not save; the list being sorted by cost, blade 2 drops all that follow the first one
    that even the cheapest tail does not bring among the K best.

    Args:
        time_ms, cost, batch, cpu, gpu_percent, memory_mib: (n,) of the stage at hand, by rising cost.
        tie: (n,) the order among equals.
        batch_max, cpu_max, gpu_percent_max, memory_mib_max: ceilings.
        interval_ms: between arrivals, for a pod that must keep up and waits for a batch to fill; or 0.
        tail_ms, tail_cost: (m,) frontier of all that follows.
        budget_ms: time for the stage at hand and the tail; inf for none.
        fastest: rank by the fastest completion instead, whatever the budget.
        out_index, out_ms, out_cost: (K,) the answer: configuration, time and cost of the path.
        counts: (4,) set to: expanded, cut by time, cut by cost, within the ceilings.
    """
    k = out_index.shape[0]
    found = 0
    counts[:] = 0
    tails = tail_ms.shape[0]
    for i in range(cost.shape[0]):
        if (
            batch[i] > batch_max
            or cpu[i] > cpu_max
            or gpu_percent[i] > gpu_percent_max
            or memory_mib[i] > memory_mib_max
            or batch[i] * interval_ms * (1.0 + ROUNDING) < time_ms[i] * (interval_ms > 0.0)
        ):
            continue
        counts[3] += 1
        if not fastest and found == k and cost[i] + tail_cost[tails - 1] > out_cost[k - 1]:
            counts[2] += cost.shape[0] - i
            break
        stage_ms = time_ms[i] + (batch[i] - 1) * interval_ms
        point = 0
        if not fastest:
            if stage_ms + tail_ms[0] > budget_ms:
                counts[1] += 1
                continue
            high = tails
            while high - point > 1:
                middle = (point + high) // 2
                if stage_ms + tail_ms[middle] <= budget_ms:
                    point = middle
                else:
                    high = middle
        counts[0] += 1
        path_ms = stage_ms + tail_ms[point]
        path_cost = cost[i] + tail_cost[point]
        first = path_ms if fastest else path_cost
        second = path_cost if fastest else path_ms
        at = found
        while at > 0:
            other_first = out_ms[at - 1] if fastest else out_cost[at - 1]
            other_second = out_cost[at - 1] if fastest else out_ms[at - 1]
            if other_first < first or (
                other_first == first
                and (
                    other_second < second
                    or (other_second == second and tie[out_index[at - 1]] < tie[i])
                )
            ):
                break
            if at < k:
                out_index[at] = out_index[at - 1]
                out_ms[at] = out_ms[at - 1]
                out_cost[at] = out_cost[at - 1]
            at -= 1
        if at < k:
            out_index[at] = i
            out_ms[at] = path_ms
            out_cost[at] = path_cost
            found = min(found + 1, k)
    return found
