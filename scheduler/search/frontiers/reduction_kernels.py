"""Kernels over Pareto frontiers: join two, and reduce a network of them by trying options.

Every point of a frontier is a real completion. All kernels write into arrays of the caller.
`node_reduction` explains the method and builds the arrays; `reduction_arrays` describes them.

The kernels share one module because Numba's cache does not notice an edit of a callee in another
module.
"""

import numpy as np
from numba import b1, f8, i8, njit, void

from scheduler.search.frontiers.array_types import type_of
from scheduler.search.frontiers.arrays import Floats, IntegerMatrix, Integers, Points
from scheduler.search.frontiers.reduction_arrays import (
    BACK,
    END,
    EQUAL,
    EXPLORED,
    FIX,
    IMPROVED,
    OUT_OF_WORK,
    OVERFLOW,
    ROUNDING,
    SERIES,
    SHIFT,
    THINNING_MIN,
    Envelope,
    Heap,
    Memory,
)

_F = f8[::1]
_I = i8[::1]
_PROGRAM = i8[:, ::1]
_HEAP = type_of(Heap)
_POINTS = type_of(Points)
_MEMORY = type_of(Memory)
_ENVELOPE = type_of(Envelope)


@njit(void(_HEAP, i8), nogil=True, cache=True)
def _sift_down(heap: Heap, size: int) -> None:
    """Restore the heap after a change of its root."""
    at = 0
    child = 1
    root_ms = heap.time_ms[0]
    root_row = heap.row[0]
    while child < size:
        if child + 1 < size and heap.time_ms[child + 1] < heap.time_ms[child]:
            child += 1
        if heap.time_ms[child] >= root_ms:
            break
        heap.time_ms[at] = heap.time_ms[child]
        heap.row[at] = heap.row[child]
        at = child
        child = 2 * at + 1
    heap.time_ms[at] = root_ms
    heap.row[at] = root_row


@njit(i8(_POINTS, i8, f8, f8), nogil=True, cache=True)
def _append(out: Points, count: int, time_ms: float, cost_dollars: float) -> int:
    """Append a cheaper point that is not earlier; return the new length, or OVERFLOW."""
    at = count
    if count > 0 and time_ms == out.time_ms[count - 1]:
        at -= 1
    if at >= out.time_ms.shape[0]:
        return OVERFLOW
    out.time_ms[at] = time_ms
    out.cost[at] = cost_dollars
    return at + 1


@njit(i8(_F, i8, f8, f8), nogil=True, cache=True)
def _first_below(cost: Floats, start: int, base_dollars: float, limit_dollars: float) -> int:
    """Return the first index from ``start`` on whose cost plus the base is below the limit."""
    low = start
    high = cost.shape[0]
    while low < high:
        middle = (low + high) // 2
        if base_dollars + cost[middle] < limit_dollars:
            high = middle
        else:
            low = middle + 1
    return low


@njit(i8(_POINTS, _POINTS, f8, _HEAP, _POINTS), nogil=True, cache=True)
def _join_series(first: Points, second: Points, ratio: float, heap: Heap, out: Points) -> int:
    """Join two frontiers in series: times add, costs add.

    The kernel merges the rows ``first[i] + second`` by time. A binary search skips points of a row
    that cost no less than the last point of the result, so the work depends on the number of
    points in the result rather than on the number of pairs.

    - first: the shorter frontier.
    - ratio: 0 for the exact frontier. Above 0, a point is added only if it is cheaper than the
      previous one by that ratio, and the last point always: at any time the cost is at most 1 +
      ratio times the true cost.
    - heap: scratch, as long as ``first``.
    """
    size = first.time_ms.shape[0]
    for i in range(size):
        heap.time_ms[i] = first.time_ms[i] + second.time_ms[0]  # rising, hence a valid heap
        heap.row[i] = i
        heap.column[i] = 0
    count = 0
    limit = np.inf
    while size > 0:
        i = heap.row[0]
        cost = first.cost[i] + second.cost[heap.column[i]]
        if cost < limit:
            count = _append(out, count, heap.time_ms[0], cost)
            if count == OVERFLOW:
                return OVERFLOW
            limit = cost / (1.0 + ratio)
        column = _first_below(second.cost, heap.column[i] + 1, first.cost[i], limit)
        if column < second.time_ms.shape[0]:
            heap.column[i] = column
            heap.time_ms[0] = first.time_ms[i] + second.time_ms[column]
        else:
            size -= 1
            heap.time_ms[0] = heap.time_ms[size]
            heap.row[0] = heap.row[size]
        _sift_down(heap, size)
    cheapest = first.cost[-1] + second.cost[-1]
    if cheapest < out.cost[count - 1]:  # was thinned out; it is always part of the result
        count = _append(out, count, first.time_ms[-1] + second.time_ms[-1], cheapest)
    return count


@njit(i8(_F, i8, f8), nogil=True, cache=True)
def _last_until(time_ms: Floats, start: int, until_ms: float) -> int:
    """Return the last index from ``start`` on whose time is at most ``until_ms``, or ``start``."""
    at = start
    while at + 1 < time_ms.shape[0] and time_ms[at + 1] <= until_ms:
        at += 1
    return at


@njit(i8(_POINTS, _POINTS, f8, _POINTS), nogil=True, cache=True)
def _join_parallel(first: Points, second: Points, ratio: float, out: Points) -> int:
    """Join two frontiers in parallel: the longer time, the sum of the costs.

    At each time of either frontier, both run their cheapest point within that time. Arguments are
    as in `_join_series`.
    """
    rows = first.time_ms.shape[0]
    columns = second.time_ms.shape[0]
    time = max(first.time_ms[0], second.time_ms[0])
    i = 0
    j = 0
    count = 0
    limit = np.inf
    while True:
        i = _last_until(first.time_ms, i, time)
        j = _last_until(second.time_ms, j, time)
        cost = first.cost[i] + second.cost[j]
        last = i + 1 == rows and j + 1 == columns
        if cost < limit or (last and cost < out.cost[count - 1]):
            count = _append(out, count, time, cost)
            limit = cost / (1.0 + ratio)
        if last or count == OVERFLOW:
            return count
        time = np.inf
        if i + 1 < rows:
            time = first.time_ms[i + 1]
        if j + 1 < columns:
            time = min(time, second.time_ms[j + 1])


@njit(i8(i8, _F, _F, _F, _F, _F, _I, _I, _F, _F, _F), nogil=True, cache=True)
def join(
    kind: int,
    first_ms: Floats,
    first_cost: Floats,
    second_ms: Floats,
    second_cost: Floats,
    heap_ms: Floats,
    heap_row: Integers,
    heap_column: Integers,
    out_ms: Floats,
    out_cost: Floats,
    max_ratio: Floats,
) -> int:
    """Join two frontiers in SERIES or PARALLEL; thin the result to the length of its arrays.

    ``max_ratio`` is raised to the ratio by which it was thinned; the heap is scratch, as long
    as the shorter frontier. Returns the number of points.
    """
    first, second = Points(first_ms, first_cost), Points(second_ms, second_cost)
    if first_ms.shape[0] > second_ms.shape[0]:
        first, second = second, first
    heap = Heap(heap_ms, heap_row, heap_column)
    out = Points(out_ms, out_cost)
    ratio = 0.0
    while True:
        if kind == SERIES:
            count = _join_series(first, second, ratio, heap, out)
        else:
            count = _join_parallel(first, second, ratio, out)
        if count != OVERFLOW:
            max_ratio[0] = max(max_ratio[0], ratio)
            return int(count)
        ratio = max(THINNING_MIN, 4.0 * ratio)


@njit(b1(_F, _F, _ENVELOPE, f8), nogil=True, cache=True)
def _improves(time_ms: Floats, cost: Floats, envelope: Envelope, tolerance_ratio: float) -> bool:
    """Return true if any point is cheaper than the envelope by that ratio."""
    i = -1
    for k in range(time_ms.shape[0]):
        while i + 1 < envelope.length[0] and envelope.time_ms[i + 1] <= time_ms[k]:
            i += 1
        if i < 0 or cost[k] * (1.0 + tolerance_ratio) < envelope.cost[i] * (1.0 - EQUAL):
            return True
    return False


@njit(void(_MEMORY, i8, i8, i8, i8), nogil=True, cache=True)
def _join_slots(memory: Memory, kind: int, first: int, second: int, out: int) -> None:
    """Join two slots; thin the result if its slot is too short for it."""
    a, b, c = memory.slot_start[first], memory.slot_start[second], memory.slot_start[out]
    a_end, b_end = a + memory.length[first], b + memory.length[second]
    c_end = memory.slot_start[out + 1]
    memory.length[out] = join(
        kind,
        memory.time_ms[a:a_end], memory.cost[a:a_end],
        memory.time_ms[b:b_end], memory.cost[b:b_end],
        memory.heap_ms, memory.heap_row, memory.heap_column,
        memory.time_ms[c:c_end], memory.cost[c:c_end], memory.ratio,
    )  # fmt: skip


@njit(void(_MEMORY, i8, i8, i8, i8), nogil=True, cache=True)
def _raise_bound(memory: Memory, level: int, first: int, second: int, out: int) -> None:
    """Compute ``low`` of a joined slot, replace that of its parts in the bound, and drop rows."""
    start = memory.slot_start[out]
    end = start + memory.length[out]
    count = 0
    for j in range(memory.alive_count[level]):
        r = memory.alive[level, j]
        low = np.inf
        for i in range(start, end):
            low = min(low, memory.cost[i] + memory.price[out, r] * memory.time_ms[i])
        memory.low[out, r] = low
        memory.bound[level, r] += max(0.0, low - memory.low[first, r] - memory.low[second, r])
        if memory.bound[level, r] < memory.gap[r]:
            memory.alive[level, count] = r
            count += 1
    memory.work[0] += memory.length[out] * (1 + memory.alive_count[level])
    memory.alive_count[level] = count


@njit(void(_MEMORY, i8, i8, i8, f8, f8), nogil=True, cache=True)
def _copy_near(
    memory: Memory, level: int, source: int, out: int, shift_ms: float, shift_dollars: float
) -> None:
    """Copy the points of a slot that can be part of an improvement, and shift them."""
    start = memory.slot_start[source]
    to = memory.slot_start[out]
    for i in range(start, start + memory.length[source]):
        for j in range(memory.alive_count[level]):
            r = memory.alive[level, j]
            own = memory.cost[i] + memory.price[source, r] * memory.time_ms[i]
            if memory.bound[level, r] - memory.low[source, r] + own < memory.gap[r]:
                memory.time_ms[to] = memory.time_ms[i] + shift_ms
                memory.cost[to] = memory.cost[i] + shift_dollars
                to += 1
                break
    for j in range(memory.alive_count[level]):
        r = memory.alive[level, j]
        shift = memory.price[source, r] * shift_ms + shift_dollars
        memory.low[out, r] = memory.low[source, r] + shift
    memory.work[0] += memory.length[source] * memory.alive_count[level]
    memory.length[out] = to - memory.slot_start[out]


@njit(b1(_MEMORY, i8, i8, i8), nogil=True, cache=True)
def _fix(memory: Memory, level: int, slot: int, point: int) -> bool:
    """Fix a point for the next level; return true if that can improve the envelope."""
    at = memory.slot_start[slot] + point
    count = 0
    for j in range(memory.alive_count[level]):
        r = memory.alive[level, j]
        own = memory.cost[at] + memory.price[slot, r] * memory.time_ms[at]
        bound = memory.bound[level, r] - memory.low[slot, r] + own
        if bound < memory.gap[r]:
            memory.bound[level + 1, r] = bound
            memory.alive[level + 1, count] = r
            count += 1
    memory.work[0] += memory.alive_count[level]
    memory.alive_count[level + 1] = count
    memory.fixed_ms[level] = memory.time_ms[at]
    memory.fixed_cost[level] = memory.cost[at]
    return count > 0


@njit(i8(_MEMORY, _ENVELOPE, i8, i8, i8, i8), nogil=True, cache=True)
def _only_point(
    memory: Memory, envelope: Envelope, level: int, slot: int, row: int, traced: int
) -> int:
    """Return the point of a traced completion, or the best one by a row of prices.

    By the last row it is the fastest one.
    """
    start, size = memory.slot_start[slot], memory.length[slot]
    if traced >= 0:
        until_ms = envelope.fixed_ms[traced, level] * (1.0 + ROUNDING)
        return _last_until(memory.time_ms[start : start + size], 0, until_ms)
    if row + 1 == memory.price.shape[1]:
        return 0
    best = start
    price = memory.price[slot, row]
    for i in range(start, start + size):
        own = memory.cost[i] + price * memory.time_ms[i]
        if own < memory.cost[best] + price * memory.time_ms[best]:
            best = i
    return int(best - start)


@njit(i8(_PROGRAM, _MEMORY, _ENVELOPE, i8, i8, i8), nogil=True, cache=True)
def _next(
    program: IntegerMatrix, memory: Memory, envelope: Envelope, level: int, row: int, traced: int
) -> int:
    """Fix the next point that can improve the envelope, at the last level that has one.

    Returns the level after it; 0 if there is none.
    """
    single = row >= 0 or traced >= 0
    while level > 0:
        fixed = level - 1
        memory.cursor[fixed] += 1
        point = memory.cursor[fixed]
        slot = program[memory.fixed_at[fixed], 1]
        if point == (1 if single else memory.length[slot]):
            level = fixed
            continue
        if single:
            point = _only_point(memory, envelope, fixed, slot, row, traced)
        if _fix(memory, fixed, slot, point):
            return level
    return 0


@njit(b1(_PROGRAM, _MEMORY, i8, i8), nogil=True, cache=True)
def _run_operation(program: IntegerMatrix, memory: Memory, level: int, at: int) -> bool:
    """Run a SERIES, PARALLEL or SHIFT; return true if the result can improve the envelope."""
    kind, first, second, out = program[at]
    if kind == SHIFT:
        shift_dollars = memory.fixed_cost[level - 1] if second == 1 else 0.0
        _copy_near(memory, level, first, out, memory.fixed_ms[level - 1], shift_dollars)
    else:
        _join_slots(memory, kind, first, second, out)
        _raise_bound(memory, level, first, second, out)
        _copy_near(memory, level, out, out, 0.0, 0.0)
    return bool(memory.length[out] > 0)


@njit(i8(_PROGRAM, _MEMORY, _ENVELOPE, f8, i8, i8, i8), nogil=True, cache=True)
def explore(
    program: IntegerMatrix,
    memory: Memory,
    envelope: Envelope,
    tolerance_ratio: float,
    row: int,
    traced: int,
    work_max: int,
) -> int:
    """Run a program for the points of its slots, until the whole improves the envelope.

    - memory: ``position`` is where to begin; the kernel sets it to where it continues.
    - tolerance_ratio: relative cost; completions that would improve less are skipped.
    - row: -1 for all points; or fix the best points by this row of prices alone, by the last row
      the fastest.
    - traced: -1; or fix the points of this completion of the envelope alone.
    - work_max: limit of ``memory.work``, for all points.

    Returns IMPROVED, EXPLORED or OUT_OF_WORK.
    """
    level, at = memory.position
    while memory.alive_count[0] > 0:
        if at == BACK:
            if row < 0 and traced < 0 and memory.work[0] > work_max:
                return OUT_OF_WORK
            level = _next(program, memory, envelope, level, row, traced)
            if level == 0:
                break
            at = memory.fixed_at[level - 1] + 1
        kind, slot = program[at, 0], program[at, 1]
        if kind == FIX:
            memory.fixed_at[level] = at
            memory.cursor[level] = -1
            level += 1
            at = BACK
        elif kind == END:
            at = BACK
            begin, end = memory.slot_start[slot], memory.slot_start[slot] + memory.length[slot]
            time_ms, cost = memory.time_ms[begin:end], memory.cost[begin:end]
            if traced >= 0 or _improves(time_ms, cost, envelope, tolerance_ratio):
                memory.position[:] = level, at
                return IMPROVED
        else:
            at = at + 1 if _run_operation(program, memory, level, at) else BACK
    return EXPLORED
