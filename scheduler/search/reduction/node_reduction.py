"""Pareto frontier of stages in any order, by node reduction.

The order becomes a network of arcs, which is joined in series and in parallel as far as possible.
What is not series-parallel needs some arcs fixed to one option. For each combination of these
options the rest is joined to one frontier, and the envelope of all is the result
(E. L. Demeulemeester, W. S. Herroelen, S. E. Elmaghraby, "Optimal procedures for the discrete
time/cost trade-off problem in project networks", 1996).

Most combinations are skipped: prices of time bound the cost of every completion with some options,
at any time, and only options whose bound is below the envelope somewhere are tried. The same bound
shortens every frontier that is joined. The envelope begins with the best options by each row of
prices. If the work exceeds its limit, combinations that would improve the envelope by less than a
tolerance are skipped as well, and epsilon states it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scheduler.search.dag import Dag
from scheduler.search.frontiers.arrays import Floats, IntegerMatrix, Integers, Matrix
from scheduler.search.frontiers.frontier import (
    EMPTY,
    POINTS_MAX,
    Frontier,
    cost_ratios,
    in_parallel,
    in_series,
)
from scheduler.search.frontiers.reduction_arrays import (
    END,
    EQUAL,
    EXPLORED,
    FIX,
    IMPROVED,
    OVERFLOW,
    PARALLEL,
    ROUNDING,
    SERIES,
    Envelope,
    Memory,
    PriceRows,
)
from scheduler.search.frontiers.reduction_kernels import explore
from scheduler.search.reduction.envelope_kernels import merge, set_gaps, trace
from scheduler.search.reduction.event_network import NO_STAGE, EventNetwork
from scheduler.search.reduction.time_prices import prices_of_time

WORK_MAX = 50_000_000  # points x rows of prices; all attempts take up to 3 s for 32 stages
TOLERANCE_MIN = 1e-3  # relative cost; a smaller excess is not reduced further
NEAR_RATIO = 8.0 * ROUNDING  # relative time; a smaller difference is by rounding alone
OUT_OF_POINTS = -1  # the envelope has too many points
TINY_DOLLARS = 1e-300  # so that completions that cost nothing can be traced
SLOT_POINTS_MAX = 4_096  # of a frontier joined for one combination of options


class ReducedFrontier(NamedTuple):
    """Frontier of all stages, and the option of each stage for each of its points.

    Attributes:
        frontier: real completions, with epsilon.
        options: (points, stages) indices into the frontiers of the stages.
    """

    frontier: Frontier
    options: IntegerMatrix


def reduced_frontier(
    dag: Dag, frontiers: Sequence[Frontier], work_max: int = WORK_MAX
) -> ReducedFrontier:
    """Compute the frontier of stages in any order.

    Args:
        dag: order of the stages.
        frontiers: frontier of each stage.
        work_max: work of one attempt, in points x rows of prices that are compared.
    """
    network = EventNetwork.of(dag, [len(f.time_ms) for f in frontiers])
    network.join()
    slots = [EMPTY if stage == NO_STAGE else frontiers[stage] for stage in network.stages]
    for kind, first, second, out in network.operations:
        join = in_series if kind == SERIES else in_parallel
        slots.append(join(slots[first], slots[second]))
        network.options[out] = len(slots[out].time_ms)
    exploration = _Exploration.of(network, slots)
    excess_ratio = exploration.excess_ratio(work_max)
    time_ms, limits_ms = exploration.completions(len(frontiers))
    epsilon = (1.0 + max(slot.epsilon for slot in slots)) * (1.0 + excess_ratio) - 1.0
    options = np.empty(limits_ms.shape, np.int64)
    cost = np.zeros(len(limits_ms))
    for v, own in enumerate(frontiers):
        options[:, v] = np.searchsorted(own.time_ms, limits_ms[:, v], side="right") - 1
        cost += own.cost[options[:, v]]
    # With a tolerance, some completions cost less than their points, or even than the next ones.
    cheaper = np.append(True, cost[1:] < np.minimum.accumulate(cost)[:-1])
    return ReducedFrontier(
        Frontier(time_ms[cheaper], cost[cheaper], epsilon), IntegerMatrix(options[cheaper])
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Exploration:
    """The arrays of the kernel."""

    program: IntegerMatrix
    begin: int  # the operations before it have been done
    rows: PriceRows
    memory: Memory
    envelope: Envelope

    @classmethod
    def of(cls, joined: EventNetwork, slots: Sequence[Frontier]) -> "_Exploration":
        """Allocate the arrays for a network that is joined as far as possible."""
        network = joined.reduced()
        begin = len(joined.operations)
        rows, price = _price_rows(joined, network, slots)
        sizes = [len(slot.time_ms) for slot in slots]
        for kind, first, second, _ in network.operations[begin:]:
            if kind == SERIES:
                sizes.append(min(SLOT_POINTS_MAX, sizes[first] * sizes[second] + 1))
            elif kind == PARALLEL:
                sizes.append(min(SLOT_POINTS_MAX, sizes[first] + sizes[second]))
            elif kind != FIX:
                sizes.append(sizes[first])
        start = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=start[1:])
        (whole,) = network.arcs
        operations = np.array([*network.operations, (END, whole, 0, 0)], np.int64)
        levels = sum(kind == FIX for kind, *_ in network.operations)
        memory = _memory(start, slots, price, levels, max(sizes))
        for slot in joined.arcs:
            priced = slots[slot].cost + price[slot][:, None] * slots[slot].time_ms
            memory.low[slot] = priced.min(axis=1)
            memory.bound[0] += memory.low[slot]
        envelope = Envelope(
            np.empty(POINTS_MAX),
            np.empty(POINTS_MAX),
            Matrix(np.empty((POINTS_MAX, levels))),
            np.empty(POINTS_MAX),
            np.empty(POINTS_MAX),
            Matrix(np.empty((POINTS_MAX, levels))),
            np.zeros(1, np.int64),
        )
        return cls(IntegerMatrix(operations), begin, rows, memory, envelope)

    def excess_ratio(self, work_max: int) -> float:
        """Compute the envelope; return the maximum relative excess over the minimum cost."""
        for row in reversed(range(len(self.rows.flow))):  # the fastest completion first
            self._explore(0.0, work_max, row)
        self.memory.ratio[0] = 0.0  # what the first envelope lacks counts as not explored
        excess = 0.0
        if self._explore(0.0, work_max) != EXPLORED:
            excess = self._envelope_excess_ratio()
            while (
                excess > TOLERANCE_MIN
                and self._explore(tolerance := min(excess, 1.0) / 2.0, work_max) == EXPLORED
            ):
                excess = min(tolerance, self._envelope_excess_ratio())
        joins = len(self.program)
        return float((1.0 + excess) * (1.0 + self.memory.ratio[0]) ** joins - 1.0)

    def _envelope_excess_ratio(self) -> float:
        """Return the maximum relative excess of the envelope over the bound of the prices."""
        count = int(self.envelope.length[0])
        time_ms, cost = self.envelope.time_ms[:count], self.envelope.cost[:count]
        ends_ms = np.append(time_ms[1:], time_ms[-1])  # the last point costs the least possible
        bounds = self.memory.bound[0][:, None] - self.rows.flow[:, None] * ends_ms
        return float(cost_ratios(cost, bounds.max(axis=0)).max()) - 1.0

    def completions(self, stages: int) -> tuple[Floats, Floats]:
        """Return the times of the envelope and, at each of them, the time for each stage."""
        count = int(self.envelope.length[0])
        # A completion may be late by rounding, so it is no other than the one directly after it.
        near = np.diff(self.envelope.time_ms[:count]) <= NEAR_RATIO * self.envelope.time_ms[1:count]
        points = np.flatnonzero(np.append(~near, True))
        limits_ms = Matrix(np.empty((len(points), stages)))
        for i, point in enumerate(points.tolist()):
            self._trace(point)
            limits_ms[i] = self.memory.limit_ms[:stages]
        return self.envelope.time_ms[points], limits_ms * (1.0 + ROUNDING)

    def _explore(self, tolerance_ratio: float, work_max: int, row: int = -1) -> int:
        """Merge the completions of all options, or the best ones by a row of prices."""
        self.memory.work[0] = 0
        self.memory.position[:] = 0, self.begin
        while True:
            if row < 0:
                set_gaps(self.rows, self.envelope, tolerance_ratio, self.memory.gap)
                self._set_alive(np.flatnonzero(self.memory.bound[0] < self.memory.gap))
            else:
                self.memory.gap[row] = np.inf
                self._set_alive(np.array([row]))
            status = explore(
                self.program, self.memory, self.envelope, tolerance_ratio, row, -1, work_max
            )
            if status != IMPROVED:
                return int(status)
            whole = self.program[-1, 1]
            start, count = self.memory.slot_start[whole], self.memory.length[whole]
            points = slice(start, start + count)
            time_ms, cost = self.memory.time_ms[points], self.memory.cost[points]
            if merge(time_ms, cost, self.memory.fixed_ms, self.envelope) == OVERFLOW:
                return OUT_OF_POINTS

    def _trace(self, point: int) -> None:
        """Set ``memory.limit_ms`` to the times for all slots at a point of the envelope."""
        time_ms, cost = self.envelope.time_ms[point], self.envelope.cost[point]
        row = int(np.argmax(self.rows.from_ms[:-1] <= time_ms * (1.0 + EQUAL)))
        value = cost + self.rows.flow[row] * time_ms
        self.memory.gap[row] = value * (1.0 + 100.0 * EQUAL) + TINY_DOLLARS
        self._set_alive(np.array([row]))
        self.memory.position[:] = 0, self.begin
        if explore(self.program, self.memory, self.envelope, 0.0, -1, point, 0) != IMPROVED:
            raise AssertionError("the options of a point are within its own bound")
        trace(self.program, self.memory, time_ms)

    def _set_alive(self, rows: Integers) -> None:
        self.memory.alive[0, : len(rows)] = rows
        self.memory.alive_count[0] = len(rows)


def _memory(
    start: Integers, slots: Sequence[Frontier], price: Matrix, levels: int, points: int
) -> Memory:
    count, rows = price.shape
    memory = Memory(
        slot_start=start,
        length=np.zeros(count, np.int64),
        time_ms=np.empty(start[-1]),
        cost=np.empty(start[-1]),
        price=price,
        low=Matrix(np.zeros((count, rows))),
        bound=Matrix(np.zeros((levels + 1, rows))),
        alive=IntegerMatrix(np.zeros((levels + 1, rows), np.int64)),
        alive_count=np.zeros(levels + 1, np.int64),
        gap=np.zeros(rows),
        position=np.zeros(2, np.int64),
        fixed_at=np.zeros(levels, np.int64),
        cursor=np.zeros(levels, np.int64),
        fixed_ms=np.zeros(levels),
        fixed_cost=np.zeros(levels),
        heap_ms=np.empty(points),
        heap_row=np.empty(points, np.int64),
        heap_column=np.empty(points, np.int64),
        limit_ms=np.zeros(count),
        work=np.zeros(1, np.int64),
        ratio=np.zeros(1),
    )
    for slot, frontier in enumerate(slots):
        at = slice(start[slot], start[slot] + len(frontier.time_ms))
        memory.length[slot] = len(frontier.time_ms)
        memory.time_ms[at], memory.cost[at] = frontier.time_ms, frontier.cost
    return memory


def _price_rows(
    joined: EventNetwork, network: EventNetwork, slots: Sequence[Frontier]
) -> tuple[PriceRows, Matrix]:
    """Compute the prices of time of all slots; what is joined in parallel adds its prices up."""
    row_ms, by_row, flow = prices_of_time(joined.arcs, slots)
    price = np.zeros((network.slots, len(row_ms)))
    price[: len(slots)] = by_row.T
    for kind, first, second, out in network.operations[len(joined.operations) :]:
        if kind == PARALLEL:
            price[out] = price[first] + price[second]
        elif kind != FIX:
            price[out] = price[first]
    # One more row, valid at no time, begins the envelope with the fastest completion.
    price = np.append(price, np.zeros((len(price), 1)), axis=1)
    flow = np.append(flow, 0.0)
    from_ms = np.append(row_ms[:-1], [0.0, 0.0])  # the last prices count for all shorter times
    to_ms = np.concatenate([[np.inf], row_ms[:-1], [0.0]])
    return PriceRows(flow, from_ms, to_ms), Matrix(price)
