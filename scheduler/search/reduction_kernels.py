"""Kernels over Pareto frontiers: join two, and reduce a network of them by trying options.

A frontier is two parallel arrays: ``time_ms`` strictly rising, ``cost`` (dollars per request)
strictly falling; every point is a real completion. All kernels write into arrays of the caller.
`node_reduction` explains the method and builds the arrays.

The kernels share one module because Numba's cache does not notice an edit of a callee in another
module.
"""

from typing import NamedTuple

import numpy as np
from numba import b1, f8, i8, njit, types, void

from scheduler.search.arrays import Floats, IntegerMatrix, Integers, Matrix

OVERFLOW = -1
SERIES, PARALLEL, FIX, SHIFT, END = range(5)  # operations of a program
EXPLORED, OUT_OF_WORK, OUT_OF_POINTS = range(3)  # results of `explore`
THINNING_MIN = 1e-6  # relative cost; the first attempt if a joined frontier is too long
ROUNDING = 1e-12  # relative time; sums in another order differ by less
EQUAL = 1e-11  # relative cost; sums in another order differ by less
TINY_DOLLARS = 1e-300  # so that completions that cost nothing can be traced

_F = f8[::1]
_I = i8[::1]


class Program(NamedTuple):
    """Operations that reduce a network of arcs to one arc; each writes its result into a new slot.

    An operation is (kind, slot, slot, result): SERIES and PARALLEL join two slots. FIX chooses one
    point of a slot, and the operations after it run once for each of its points. SHIFT adds the
    time of that point to a slot, and its cost if the third number is 1. END is the whole.
    """

    operation: IntegerMatrix  # (n, 4)
    first: int  # the operations before it have been done, and their results do not change
    slot_start: Integers  # (slots + 1,) the slots' places in the memory


class PriceRows(NamedTuple):
    """Prices of time: row r is the best for times from ``from_ms[r]`` to ``to_ms[r]``."""

    price: Matrix  # (slots, rows) dollars per ms
    flow: Floats  # (rows,) dollars per ms of the whole
    from_ms: Floats  # (rows,) falling
    to_ms: Floats  # (rows,)


class Memory(NamedTuple):
    """Working memory; a level is a number of fixed points, and a row is alive if it can improve."""

    length: Integers  # (slots,) number of points
    time_ms: Floats  # points of all slots
    cost: Floats
    low: Matrix  # (slots, rows) minimum of cost + price x time over the points of a slot
    bound: Matrix  # (levels, rows) sum of ``low`` over the arcs of the reduced network
    alive: IntegerMatrix  # (levels, rows) rows whose bound is below ``gap``
    alive_count: Integers  # (levels,)
    gap: Floats  # (rows,) bound from which on nothing improves the envelope
    fixed_at: Integers  # (levels,) the FIX of a level
    cursor: Integers  # (levels,) its current point
    fixed_ms: Floats  # (levels,) time of that point
    fixed_cost: Floats  # (levels,)
    key: Floats  # (points,) scratch of `join_series`
    row: Integers
    column: Integers
    limit_ms: Floats  # (slots,) time for each slot in the completion that was traced
    work: Integers  # (1,) points x rows compared
    ratio: Floats  # (1,) maximum ratio by which a frontier was thinned


class Envelope(NamedTuple):
    """The best known completions, by rising time and falling cost."""

    time_ms: Floats  # (n,)
    cost: Floats
    fixed_ms: Matrix  # (n, levels) time of each fixed point
    new_ms: Floats  # (n,) scratch of the same shapes
    new_cost: Floats
    new_fixed_ms: Matrix
    length: Integers  # (1,)


_TYPES = {
    Floats: _F,
    Integers: _I,
    Matrix: f8[:, ::1],
    IntegerMatrix: i8[:, ::1],
    int: i8,
}


def _type_of(tuple_class: type) -> types.NamedTuple:
    """Return Numba's type of a named tuple of arrays and numbers."""
    fields = [_TYPES[kind] for kind in tuple_class.__annotations__.values()]
    return types.NamedTuple(fields, tuple_class)  # type: ignore[no-untyped-call]


_PROGRAM = _type_of(Program)
_ROWS = _type_of(PriceRows)
_MEMORY = _type_of(Memory)
_ENVELOPE = _type_of(Envelope)


@njit(void(_F, _I, i8), nogil=True, cache=True)
def _sift_down(key: Floats, row: Integers, size: int) -> None:
    """Restore the heap of (key, row) after a change of its root."""
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
def _append(
    out_ms: Floats, out_cost: Floats, count: int, time_ms: float, cost_dollars: float
) -> int:
    """Append a cheaper point that is not earlier; return the new length, or OVERFLOW."""
    at = count
    if count > 0 and time_ms == out_ms[count - 1]:
        at -= 1
    if at >= out_ms.shape[0]:
        return OVERFLOW
    out_ms[at] = time_ms
    out_cost[at] = cost_dollars
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
    """Join two frontiers in series: times add, costs add.

    The kernel merges the rows ``left[i] + right`` by time. A binary search skips points of a row
    that cost no less than the last point of the result, so the work depends on the number of
    points in the result rather than on the number of pairs.

    - left_ms, left_cost: (n,) the shorter frontier. right_ms, right_cost: (m,).
    - ratio: 0 for the exact frontier. Above 0, a point is added only if it is cheaper than the
      previous one by that ratio, and the last point always: at any time the cost is at most 1 +
      ratio times the true cost.
    - key, row, column: (n,) scratch: a heap of rows by time, and the next point of each row.
    - out_ms, out_cost: the result.
    """
    size = left_ms.shape[0]
    for i in range(size):
        key[i] = left_ms[i] + right_ms[0]  # rising, hence a valid heap
        row[i] = i
        column[i] = 0
    count = 0
    limit = np.inf
    while size > 0:
        i = row[0]
        cost = left_cost[i] + right_cost[column[i]]
        if cost < limit:
            count = _append(out_ms, out_cost, count, key[0], cost)
            if count == OVERFLOW:
                return OVERFLOW
            limit = cost / (1.0 + ratio)
        column[i] = _first_below(right_cost, column[i] + 1, left_cost[i], limit)
        if column[i] < right_ms.shape[0]:
            key[0] = left_ms[i] + right_ms[column[i]]
        else:
            size -= 1
            key[0] = key[size]
            row[0] = row[size]
        if size > 0:
            _sift_down(key, row, size)
    cheapest = left_cost[-1] + right_cost[-1]
    if (
        cheapest < out_cost[count - 1]
    ):  # thinned out; the cheapest point is always part of the result
        count = _append(out_ms, out_cost, count, left_ms[-1] + right_ms[-1], cheapest)
    return count


@njit(i8(_F, i8, f8), nogil=True, cache=True)
def _last_until(time_ms: Floats, start: int, until_ms: float) -> int:
    """Return the last index from ``start`` on whose time is at most ``until_ms``, or ``start``."""
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
    """Join two frontiers in parallel: the longer time, the sum of the costs.

    At each time of either frontier, both run their cheapest point within that time. Arguments are
    as in `join_series`.
    """
    rows = left_ms.shape[0]
    columns = right_ms.shape[0]
    time = max(left_ms[0], right_ms[0])
    i = 0
    j = 0
    count = 0
    limit = np.inf
    while True:
        i = _last_until(left_ms, i, time)
        j = _last_until(right_ms, j, time)
        cost = left_cost[i] + right_cost[j]
        last = i + 1 == rows and j + 1 == columns
        if cost < limit or (last and cost < out_cost[count - 1]):
            count = _append(out_ms, out_cost, count, time, cost)
            limit = cost / (1.0 + ratio)
        if last or count == OVERFLOW:
            return count
        time = np.inf
        if i + 1 < rows:
            time = left_ms[i + 1]
        if j + 1 < columns:
            time = min(time, right_ms[j + 1])


@njit(void(_ROWS, _ENVELOPE, f8, _F), nogil=True, cache=True)
def set_gaps(rows: PriceRows, envelope: Envelope, tolerance: float, gap: Floats) -> None:
    """Set for each row the bound from which on no completion is cheaper by the tolerance."""
    count = envelope.length[0]
    time_ms = envelope.time_ms[:count]
    for r in range(rows.flow.shape[0]):
        gap[r] = -np.inf
        i = max(0, np.searchsorted(time_ms, rows.from_ms[r], side="right") - 1)
        while i < count and time_ms[i] < rows.to_ms[r]:
            until_ms = rows.to_ms[r]
            if i + 1 < count:
                until_ms = min(until_ms, time_ms[i + 1])
            value = envelope.cost[i] / (1.0 + tolerance)
            if rows.flow[r] > 0.0:
                value += rows.flow[r] * until_ms
            gap[r] = max(gap[r], value * (1.0 - EQUAL))
            i += 1


@njit(b1(_F, _F, _ENVELOPE, f8), nogil=True, cache=True)
def _improves(time_ms: Floats, cost: Floats, envelope: Envelope, tolerance: float) -> bool:
    """Tell if any point is cheaper than the envelope by the tolerance."""
    i = -1
    for k in range(time_ms.shape[0]):
        while i + 1 < envelope.length[0] and envelope.time_ms[i + 1] <= time_ms[k]:
            i += 1
        if i < 0 or cost[k] * (1.0 + tolerance) < envelope.cost[i] * (1.0 - EQUAL):
            return True
    return False


@njit(i8(_F, _F, _F, _ENVELOPE), nogil=True, cache=True)
def _merge(time_ms: Floats, cost: Floats, fixed_ms: Floats, envelope: Envelope) -> int:
    """Merge a frontier into the envelope; return its new length, or OVERFLOW."""
    count = envelope.length[0]
    size = time_ms.shape[0]
    i = 0
    k = 0
    out = 0
    limit = np.inf
    while i < count or k < size:
        old = k == size
        if i < count and k < size:
            old = envelope.time_ms[i] < time_ms[k] or (
                envelope.time_ms[i] == time_ms[k] and envelope.cost[i] <= cost[k]
            )
        point_cost = envelope.cost[i] if old else cost[k]
        if point_cost < limit:
            if out == envelope.new_ms.shape[0]:
                return OVERFLOW
            envelope.new_ms[out] = envelope.time_ms[i] if old else time_ms[k]
            envelope.new_cost[out] = point_cost
            envelope.new_fixed_ms[out] = envelope.fixed_ms[i] if old else fixed_ms
            out += 1
            limit = point_cost * (1.0 - EQUAL)
        if old:
            i += 1
        else:
            k += 1
    envelope.time_ms[:out] = envelope.new_ms[:out]
    envelope.cost[:out] = envelope.new_cost[:out]
    envelope.fixed_ms[:out] = envelope.new_fixed_ms[:out]
    envelope.length[0] = out
    return out


@njit(void(_PROGRAM, _MEMORY, i8, i8, i8, i8), nogil=True, cache=True)
def _join(program: Program, memory: Memory, kind: int, left: int, right: int, out: int) -> None:
    """Join two slots; thin the result if its slot is too short for it."""
    if kind == SERIES and memory.length[left] > memory.length[right]:
        left, right = right, left
    a, b, c = program.slot_start[left], program.slot_start[right], program.slot_start[out]
    a_end, b_end, c_end = (
        a + memory.length[left],
        b + memory.length[right],
        program.slot_start[out + 1],
    )
    left_ms, left_cost = memory.time_ms[a:a_end], memory.cost[a:a_end]
    right_ms, right_cost = memory.time_ms[b:b_end], memory.cost[b:b_end]
    out_ms, out_cost = memory.time_ms[c:c_end], memory.cost[c:c_end]
    ratio = 0.0
    while True:
        if kind == SERIES:
            count = join_series(
                left_ms,
                left_cost,
                right_ms,
                right_cost,
                ratio,
                memory.key,
                memory.row,
                memory.column,
                out_ms,
                out_cost,
            )
        else:
            count = join_parallel(left_ms, left_cost, right_ms, right_cost, ratio, out_ms, out_cost)
        if count != OVERFLOW:
            break
        ratio = max(THINNING_MIN, 4.0 * ratio)
    memory.ratio[0] = max(memory.ratio[0], ratio)
    memory.length[out] = count


@njit(void(_PROGRAM, _ROWS, _MEMORY, i8, i8, i8, i8), nogil=True, cache=True)
def _raise_bound(
    program: Program, rows: PriceRows, memory: Memory, level: int, left: int, right: int, out: int
) -> None:
    """Compute ``low`` of a joined slot, replace that of its parts in the bound, and drop rows."""
    start = program.slot_start[out]
    end = start + memory.length[out]
    count = 0
    for j in range(memory.alive_count[level]):
        r = memory.alive[level, j]
        low = np.inf
        for i in range(start, end):
            low = min(low, memory.cost[i] + rows.price[out, r] * memory.time_ms[i])
        memory.low[out, r] = low
        memory.bound[level, r] += max(0.0, low - memory.low[left, r] - memory.low[right, r])
        if memory.bound[level, r] < memory.gap[r]:
            memory.alive[level, count] = r
            count += 1
    memory.work[0] += memory.length[out] * (1 + memory.alive_count[level])
    memory.alive_count[level] = count


@njit(void(_PROGRAM, _ROWS, _MEMORY, i8, i8, i8, f8, f8), nogil=True, cache=True)
def _copy_near(
    program: Program,
    rows: PriceRows,
    memory: Memory,
    level: int,
    source: int,
    out: int,
    shift_ms: float,
    shift_cost: float,
) -> None:
    """Copy the points of a slot that can be part of an improvement, and shift them."""
    start = program.slot_start[source]
    to = program.slot_start[out]
    for i in range(start, start + memory.length[source]):
        for j in range(memory.alive_count[level]):
            r = memory.alive[level, j]
            own = memory.cost[i] + rows.price[source, r] * memory.time_ms[i]
            if memory.bound[level, r] - memory.low[source, r] + own < memory.gap[r]:
                memory.time_ms[to] = memory.time_ms[i] + shift_ms
                memory.cost[to] = memory.cost[i] + shift_cost
                to += 1
                break
    for j in range(memory.alive_count[level]):
        r = memory.alive[level, j]
        memory.low[out, r] = memory.low[source, r] + rows.price[source, r] * shift_ms + shift_cost
    memory.work[0] += memory.length[source] * memory.alive_count[level]
    memory.length[out] = to - program.slot_start[out]


@njit(b1(_PROGRAM, _ROWS, _MEMORY, i8, i8), nogil=True, cache=True)
def _fix(program: Program, rows: PriceRows, memory: Memory, level: int, point: int) -> bool:
    """Fix a point for the next level; tell if that can improve the envelope."""
    slot = program.operation[memory.fixed_at[level], 1]
    at = program.slot_start[slot] + point
    count = 0
    for j in range(memory.alive_count[level]):
        r = memory.alive[level, j]
        own = memory.cost[at] + rows.price[slot, r] * memory.time_ms[at]
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


@njit(i8(_PROGRAM, _ROWS, _MEMORY, _ENVELOPE, i8, i8, i8), nogil=True, cache=True)
def _only_point(
    program: Program,
    rows: PriceRows,
    memory: Memory,
    envelope: Envelope,
    level: int,
    row: int,
    traced: int,
) -> int:
    """Return the point of a traced completion, or the best one by a row of prices."""
    slot = program.operation[memory.fixed_at[level], 1]
    start = program.slot_start[slot]
    size = memory.length[slot]
    if traced >= 0:
        until_ms = envelope.fixed_ms[traced, level] * (1.0 + ROUNDING)
        return _last_until(memory.time_ms[start : start + size], 0, until_ms)
    best = 0
    for i in range(size):
        own = memory.cost[start + i] + rows.price[slot, row] * memory.time_ms[start + i]
        if own < memory.cost[start + best] + rows.price[slot, row] * memory.time_ms[start + best]:
            best = i
    return best


@njit(void(_PROGRAM, _MEMORY, i8, f8), nogil=True, cache=True)
def _trace(program: Program, memory: Memory, level: int, limit_ms: float) -> None:
    """Split the time of a completion among all slots, from the whole back to the stages."""
    limit = memory.limit_ms
    limit[program.operation[-1, 1]] = limit_ms * (1.0 + ROUNDING)
    for at in range(program.operation.shape[0] - 2, -1, -1):
        kind, left = program.operation[at, 0], program.operation[at, 1]
        right, out = program.operation[at, 2], program.operation[at, 3]
        if kind == FIX:
            level -= 1
            limit[left] = memory.fixed_ms[level]
        elif kind == SHIFT:
            limit[left] = limit[out] * (1.0 + ROUNDING) - memory.fixed_ms[level - 1]
        elif kind == PARALLEL:
            limit[left] = limit[out]
            limit[right] = limit[out]
        else:
            a, b = program.slot_start[left], program.slot_start[right]
            j = memory.length[right] - 1
            best = np.inf
            until_ms = limit[out] * (1.0 + ROUNDING)
            for i in range(memory.length[left]):
                while j >= 0 and memory.time_ms[a + i] + memory.time_ms[b + j] > until_ms:
                    j -= 1
                if j < 0:
                    break
                cost = memory.cost[a + i] + memory.cost[b + j]
                if cost < best:
                    best = cost
                    limit[left] = memory.time_ms[a + i]
                    limit[right] = memory.time_ms[b + j]


@njit(void(_ROWS, _MEMORY, _ENVELOPE, f8, i8, i8), nogil=True, cache=True)
def _start(
    rows: PriceRows, memory: Memory, envelope: Envelope, tolerance: float, row: int, traced: int
) -> None:
    """Set the rows that are alive at level 0, and their gaps."""
    count = 0
    if traced >= 0:
        time_ms = envelope.time_ms[traced]
        row = 0
        while row + 1 < rows.flow.shape[0] and rows.from_ms[row] > time_ms * (1.0 + EQUAL):
            row += 1
        value = envelope.cost[traced] + rows.flow[row] * time_ms
        memory.gap[row] = value * (1.0 + 100.0 * EQUAL) + TINY_DOLLARS
    elif row >= 0:
        memory.gap[row] = np.inf
    else:
        set_gaps(rows, envelope, tolerance, memory.gap)
    for r in range(rows.flow.shape[0]):
        if row in (r, -1) and memory.bound[0, r] < memory.gap[r]:
            memory.alive[0, count] = r
            count += 1
    memory.alive_count[0] = count


@njit(i8(_PROGRAM, _ROWS, _MEMORY, _ENVELOPE, i8, i8, i8), nogil=True, cache=True)
def _next(
    program: Program,
    rows: PriceRows,
    memory: Memory,
    envelope: Envelope,
    level: int,
    row: int,
    traced: int,
) -> int:
    """Fix the next point that can improve the envelope, at the last level that has one.

    Returns the level after it; 0 if there is none.
    """
    single = row >= 0 or traced >= 0
    while level > 0:
        fixed = level - 1
        memory.cursor[fixed] += 1
        point = memory.cursor[fixed]
        slot = program.operation[memory.fixed_at[fixed], 1]
        if point == (1 if single else memory.length[slot]):
            level = fixed
            continue
        if single:
            point = _only_point(program, rows, memory, envelope, fixed, row, traced)
        if _fix(program, rows, memory, fixed, point):
            break
    return level


@njit(b1(_PROGRAM, _ROWS, _MEMORY, i8, i8), nogil=True, cache=True)
def _run_operation(program: Program, rows: PriceRows, memory: Memory, level: int, at: int) -> bool:
    """Run a SERIES, PARALLEL or SHIFT; tell if the result can improve the envelope."""
    kind, left = program.operation[at, 0], program.operation[at, 1]
    right, out = program.operation[at, 2], program.operation[at, 3]
    if kind == SHIFT:
        shift_ms = memory.fixed_ms[level - 1]
        shift_cost = memory.fixed_cost[level - 1] if right == 1 else 0.0
        _copy_near(program, rows, memory, level, left, out, shift_ms, shift_cost)
    else:
        _join(program, memory, kind, left, right, out)
        _raise_bound(program, rows, memory, level, left, right, out)
        _copy_near(program, rows, memory, level, out, out, 0.0, 0.0)
    return bool(memory.length[out] > 0)


@njit(i8(_PROGRAM, _ROWS, _MEMORY, _ENVELOPE, f8, i8, i8, i8), nogil=True, cache=True)
def explore(
    program: Program,
    rows: PriceRows,
    memory: Memory,
    envelope: Envelope,
    tolerance: float,
    row: int,
    traced: int,
    work_max: int,
) -> int:
    """Run a program for the points of its slots, and merge the results into the envelope.

    - tolerance: relative cost; completions that would improve the envelope by less are skipped.
    - row: -1 for all points; or fix the best points by this row of prices alone.
    - traced: -1; or the point of the envelope whose ``limit_ms`` is wanted.
    - work_max: limit of ``memory.work``, for all points.

    Returns EXPLORED, OUT_OF_WORK or OUT_OF_POINTS.
    """
    _start(rows, memory, envelope, tolerance, row, traced)
    level = 0
    at = program.first
    while memory.alive_count[0] > 0:
        kind, slot = program.operation[at, 0], program.operation[at, 1]
        if kind in (SERIES, PARALLEL, SHIFT):
            if _run_operation(program, rows, memory, level, at):
                at += 1
                continue
        elif kind == FIX:
            memory.fixed_at[level] = at
            memory.cursor[level] = -1
            level += 1
        elif traced >= 0:
            _trace(program, memory, level, envelope.time_ms[traced])
        else:
            begin, end = program.slot_start[slot], program.slot_start[slot] + memory.length[slot]
            time_ms, cost = memory.time_ms[begin:end], memory.cost[begin:end]
            if _improves(time_ms, cost, envelope, tolerance):
                if _merge(time_ms, cost, memory.fixed_ms, envelope) == OVERFLOW:
                    return OUT_OF_POINTS
                _start(rows, memory, envelope, tolerance, row, traced)
        if row < 0 and traced < 0 and memory.work[0] > work_max:
            return OUT_OF_WORK
        level = _next(program, rows, memory, envelope, level, row, traced)
        if level == 0:
            break
        at = memory.fixed_at[level - 1] + 1
    return EXPLORED


@njit(void(_PROGRAM, _ROWS, _MEMORY, _ENVELOPE, _I, f8[:, ::1]), nogil=True, cache=True)
def trace(
    program: Program,
    rows: PriceRows,
    memory: Memory,
    envelope: Envelope,
    points: Integers,
    out_ms: Matrix,
) -> None:
    """Write the time for each of the first slots at these points of the envelope."""
    for i in range(points.shape[0]):
        explore(program, rows, memory, envelope, 0.0, -1, points[i], 0)
        out_ms[i] = memory.limit_ms[: out_ms.shape[1]]
