"""Network of events and arcs that states the order of stages, and its reduction to one arc.

A stage is an arc from the event that its predecessors have ended to the event that its successors
may begin; arcs without a stage take no time. Two arcs between the same events join in parallel, and
the only two arcs of an event join in series. If neither exists, an event that only one arc enters,
or leaves, is removed: that arc is *fixed* to one of its options, and its time is added to each arc
on the other side (W. W. Bein, J. Kamburowski, M. F. M. Stallmann, "Optimal reduction of
two-terminal directed acyclic graphs", 1992).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from scheduler.search.dag import Dag, members
from scheduler.search.frontiers.reduction_arrays import FIX, PARALLEL, SERIES, SHIFT

Operation = tuple[int, int, int, int]  # of a `Program`
NO_STAGE = -1
SOURCE, SINK = 0, 1


class _Removal(NamedTuple):
    """Removal of an event that only one arc enters, or leaves."""

    fixed: int
    others: tuple[int, ...]
    entering: bool


@dataclass(frozen=True, slots=True)
class EventNetwork:
    """Arcs between events, and the operations that created the current arcs.

    Attributes:
        arcs: the two events of each current slot.
        options: number of points of each slot, or an estimate.
        stages: stage of each of the first slots, or NO_STAGE.
        operations: operations done so far; their results are slots from ``len(stages)`` on.
        combination_count: product of the options of all arcs that were fixed.
    """

    arcs: dict[int, tuple[int, int]]
    options: dict[int, int]
    stages: tuple[int, ...]
    operations: list[Operation] = field(default_factory=list)
    combination_count: float = 1.0

    @classmethod
    def of(cls, dag: Dag, options: Sequence[int]) -> Self:
        """Create the network of a DAG; stages with equal neighbours share their events."""
        count = len(options)
        before = [0] * count
        after = [0] * count
        for v in range(count):
            before[v] = dag.preceding[v]
            for p in members(dag.preceding[v]):
                before[v] &= ~dag.preceding[p]
            for p in members(before[v]):
                after[p] |= 1 << v
        begin = {0: SOURCE}
        end = {0: SINK}
        for v in range(count):
            begin.setdefault(before[v], len(begin) + len(end))
            end.setdefault(after[v], len(begin) + len(end))
        arcs = [(begin[before[v]], end[after[v]]) for v in range(count)]
        order = {(end[after[p]], begin[b]) for b in begin for p in members(b)}
        stages = (*range(count), *(NO_STAGE for _ in order))
        sizes = [*options, *(1 for _ in order)]
        return cls(dict(enumerate([*arcs, *sorted(order)])), dict(enumerate(sizes)), stages)

    @property
    def slots(self) -> int:
        """Number of slots so far."""
        return len(self.stages) + sum(kind != FIX for kind, *_ in self.operations)

    def join(self) -> None:
        """Join arcs in series and in parallel, as far as possible."""
        joined = True
        while joined:
            joined = self._join_parallel() or self._join_series()

    def reduced(self) -> "EventNetwork":
        """Return the network reduced to one arc, with few combinations of options.

        Each removal is the one from which on a greedy reduction has the fewest combinations.
        """
        network = self
        while len(network.arcs) > 1:
            trials = [network._without(removal) for removal in network._removals()]
            network = min(trials, key=lambda trial: trial._greedy_count())  # noqa: SLF001 - ditto
        return network

    def _greedy_count(self) -> float:
        network = self
        while len(network.arcs) > 1:
            removal = min(
                network._removals(), key=lambda r: (network.options[r.fixed], len(r.others))
            )
            network = network._without(removal)
        return network.combination_count

    def _removals(self) -> list[_Removal]:
        entering, leaving = self._by_event()
        removals = []
        for event in entering.keys() & leaving.keys():
            for (fixed, *parallel), others, forward in (
                (entering[event], leaving[event], True),
                (leaving[event], entering[event], False),
            ):
                if not parallel:
                    removals.append(_Removal(fixed, tuple(others), forward))
        return removals

    def _by_event(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        entering: dict[int, list[int]] = defaultdict(list)
        leaving: dict[int, list[int]] = defaultdict(list)
        for slot, (tail, head) in self.arcs.items():
            leaving[tail].append(slot)
            entering[head].append(slot)
        return entering, leaving

    def _without(self, removal: _Removal) -> "EventNetwork":
        """Return the network without an event."""
        network = replace(
            self,
            arcs=dict(self.arcs),
            options=dict(self.options),
            operations=[*self.operations, (FIX, removal.fixed, 0, 0)],
            combination_count=self.combination_count * self.options[removal.fixed],
        )
        tail, head = network.arcs.pop(removal.fixed)
        for i, slot in enumerate(removal.others):
            other_tail, other_head = network.arcs.pop(slot)
            arc = (tail, other_head) if removal.entering else (other_tail, head)
            network._add(arc, self.options[slot], (SHIFT, slot, int(i == 0)))  # noqa: SLF001 - ditto
        network.join()
        return network

    def _add(self, arc: tuple[int, int], options: int, operation: tuple[int, int, int]) -> None:
        slot = self.slots
        self.operations.append((*operation, slot))
        self.arcs[slot] = arc
        self.options[slot] = options

    def _join_parallel(self) -> bool:
        """Join two arcs between the same events, if there are any."""
        slots: dict[tuple[int, int], int] = {}
        for slot, arc in self.arcs.items():
            first = slots.setdefault(arc, slot)
            if first != slot:
                del self.arcs[first], self.arcs[slot]
                self._add(
                    arc, self.options[first] + self.options[slot] - 1, (PARALLEL, first, slot)
                )
                return True
        return False

    def _join_series(self) -> bool:
        """Join the only two arcs of an event, if there is one."""
        entering, leaving = self._by_event()
        for event in entering.keys() & leaving.keys():
            if len(entering[event]) == len(leaving[event]) == 1:
                first, second = entering[event][0], leaving[event][0]
                arc = (self.arcs.pop(first)[0], self.arcs.pop(second)[1])
                # Most combinations are dominated, or too far from the prices.
                options = self.options[first] + self.options[second] - 1
                self._add(arc, options, (SERIES, first, second))
                return True
        return False
