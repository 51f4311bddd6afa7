"""Where a job's input is, and what that means for starts elsewhere."""

from collections.abc import Sequence

import numpy as np

from scheduler.placement.arrays import Float64Array, Int64Array

_KEPT_MAX = 1_024  # inputs a queue, each with an array of the nodes' length

Starts = tuple[tuple[float, ...], tuple[float, ...]]


class Input:
    """The output of the stages before, as it lies on the nodes.

    Attributes:
        nodes: rows of the nodes that have some of it.
        node_transfer_ms: (nodes,) how long the rest takes to each node.
        starts_ms: how long a start takes on the kinds of nodes there are, rising: where the
            function has no container yet, and where it has.
    """

    __slots__ = ("node_transfer_ms", "nodes", "starts_ms")

    def __init__(self, nodes: Int64Array, node_transfer_ms: Float64Array, cold_ms: float) -> None:
        self.nodes = nodes
        self.node_transfer_ms = node_transfer_ms
        ways_ms = {float(node_transfer_ms.min()), float(node_transfer_ms.max())}
        cold = {cold_ms + way_ms for way_ms in ways_ms}
        self.starts_ms: Starts = (tuple(sorted(cold)), tuple(sorted(cold | ways_ms)))


class Inputs:
    """What one stage reads.

    Attributes:
        before: of each stage before it, its index and how long its output for one request takes
            to another node, ms.
    """

    __slots__ = ("_cold_ms", "_kept", "_nodes", "before")

    def __init__(self, before: Sequence[tuple[int, float]], nodes: int, cold_ms: float) -> None:
        self.before = tuple(before)
        self._nodes = nodes
        self._cold_ms = cold_ms
        self._kept: dict[int | tuple[int, ...], Input] = {}

    @property
    def kinds_ms(self) -> tuple[float, ...]:
        """How long starts take where there are containers, and the input is all in one place."""
        total_ms = sum(way_ms for _, way_ms in self.before)
        cold_ms = self._cold_ms
        return tuple(sorted({0.0, total_ms, cold_ms, cold_ms + total_ms}))

    def of(self, ran_on: Sequence[int]) -> Input:
        """The input of a request whose stages ran on these rows of nodes."""
        before = self.before
        rows: int | tuple[int, ...]
        if len(before) == 1:
            rows = ran_on[before[0][0]]
        elif not before:
            rows = ()
        else:
            rows = tuple(ran_on[stage] for stage, _ in before)
        found = self._kept.get(rows)
        if found is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            found = self._kept[rows] = self._located(ran_on)
        return found

    def sent_ms(self, ran_on: Sequence[int], node: int) -> float:
        """How long the input of a request takes to a node."""
        sent_ms = 0.0
        for stage, way_ms in self.before:
            if ran_on[stage] != node:
                sent_ms += way_ms
        return sent_ms

    def _located(self, ran_on: Sequence[int]) -> Input:
        here_ms: dict[int, float] = {}
        for stage, way_ms in self.before:
            here_ms[ran_on[stage]] = here_ms.get(ran_on[stage], 0.0) + way_ms
        total_ms = sum(here_ms.values(), start=0.0)
        node_transfer_ms = np.full(self._nodes, total_ms)
        for row in here_ms:
            node_transfer_ms[row] = sum(ms for other, ms in here_ms.items() if other != row)
        return Input(np.array(list(here_ms), np.int64), node_transfer_ms, self._cold_ms)
