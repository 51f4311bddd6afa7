"""Arrays of node reduction: a program, its prices, working memory and result.

A program reduces a network of arcs to one arc. It is an array of operations (kind, slot, slot,
result), each of which writes the frontier of an arc into a new slot. SERIES and PARALLEL join two
slots. FIX chooses one point of a slot, and the operations after it run once for each of its points.
SHIFT adds the time of that point to a slot, and its cost if the third number is 1. END is the
whole.
"""

from typing import NamedTuple

from scheduler.search.frontiers.arrays import Floats, IntegerMatrix, Integers, Matrix

SERIES, PARALLEL, FIX, SHIFT, END = range(5)  # operations of a program
OVERFLOW = -1
EXPLORED, IMPROVED, OUT_OF_WORK = range(3)  # results of `explore`
BACK = -1  # position: the next point of the last fixed slot
THINNING_MIN = 1e-6  # relative cost; the first attempt if a joined frontier is too long
ROUNDING = 1e-12  # relative time; sums in another order differ by less
EQUAL = 1e-11  # relative cost; sums in another order differ by less


class Heap(NamedTuple):
    """Scratch of `join`: rows by time; row i adds point i of a frontier to those of the other."""

    time_ms: Floats  # of the row at each place of the heap
    row: Integers  # likewise
    column: Integers  # next point of each row


class PriceRows(NamedTuple):
    """Times of the rows of prices: row r is the best from ``from_ms[r]`` to ``to_ms[r]``."""

    flow: Floats  # (rows,) dollars per ms of the whole
    from_ms: Floats  # (rows,) falling
    to_ms: Floats  # (rows,)


class Memory(NamedTuple):
    """Working memory; a level is a number of fixed points, and a row is alive if it can improve."""

    slot_start: Integers  # (slots + 1,) places of the slots' points
    length: Integers  # (slots,) number of points
    time_ms: Floats  # points of all slots
    cost: Floats
    price: Matrix  # (slots, rows) dollars per ms
    low: Matrix  # (slots, rows) minimum of cost + price x time over the points of a slot
    bound: Matrix  # (levels, rows) sum of ``low`` over the arcs of the reduced network
    alive: IntegerMatrix  # (levels, rows) rows whose bound is below ``gap``
    alive_count: Integers  # (levels,)
    gap: Floats  # (rows,) bound from which on nothing improves the envelope
    position: Integers  # (2,) current level and operation
    fixed_at: Integers  # (levels,) the FIX of a level
    cursor: Integers  # (levels,) its current point
    fixed_ms: Floats  # (levels,) time of that point
    fixed_cost: Floats  # (levels,)
    heap_ms: Floats  # (points,) scratch of `join`
    heap_row: Integers
    heap_column: Integers
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
