"""Kernels over the result of a node reduction: merge a frontier into it, and trace its points.

`reduction_arrays` describes the arrays.
"""

import numpy as np
from numba import f8, i8, njit, void

from scheduler.search.frontiers.array_types import type_of
from scheduler.search.frontiers.arrays import Floats, IntegerMatrix
from scheduler.search.frontiers.reduction_arrays import (
    EQUAL,
    FIX,
    OVERFLOW,
    PARALLEL,
    ROUNDING,
    SHIFT,
    Envelope,
    Memory,
    PriceRows,
)

_F = f8[::1]
_PROGRAM = i8[:, ::1]
_ROWS = type_of(PriceRows)
_MEMORY = type_of(Memory)
_ENVELOPE = type_of(Envelope)


@njit(void(_ROWS, _ENVELOPE, f8, _F), nogil=True, cache=True)
def set_gaps(rows: PriceRows, envelope: Envelope, tolerance_ratio: float, gap: Floats) -> None:
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
            value = envelope.cost[i] / (1.0 + tolerance_ratio)
            if rows.flow[r] > 0.0:
                value += rows.flow[r] * until_ms
            gap[r] = max(gap[r], value * (1.0 - EQUAL))
            i += 1


@njit(i8(_F, _F, _F, _ENVELOPE), nogil=True, cache=True)
def merge(time_ms: Floats, cost: Floats, fixed_ms: Floats, envelope: Envelope) -> int:
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


@njit(void(_PROGRAM, _MEMORY, f8), nogil=True, cache=True)
def trace(program: IntegerMatrix, memory: Memory, limit_ms: float) -> None:
    """Split the time of a completion among all slots, from the whole back to the stages."""
    limit = memory.limit_ms
    level = memory.position[0]
    limit[program[-1, 1]] = limit_ms * (1.0 + ROUNDING)
    for at in range(program.shape[0] - 2, -1, -1):
        kind, first, second, out = program[at]
        if kind == FIX:
            level -= 1
            limit[first] = memory.fixed_ms[level]
        elif kind == SHIFT:
            limit[first] = limit[out] * (1.0 + ROUNDING) - memory.fixed_ms[level - 1]
        elif kind == PARALLEL:
            limit[first] = limit[out]
            limit[second] = limit[out]
        else:
            a, b = memory.slot_start[first], memory.slot_start[second]
            j = memory.length[second] - 1
            best = np.inf
            until_ms = limit[out] * (1.0 + ROUNDING)
            for i in range(memory.length[first]):
                while j >= 0 and memory.time_ms[a + i] + memory.time_ms[b + j] > until_ms:
                    j -= 1
                if j < 0:
                    break
                cost = memory.cost[a + i] + memory.cost[b + j]
                if cost < best:
                    best = cost
                    limit[first] = memory.time_ms[a + i]
                    limit[second] = memory.time_ms[b + j]
