"""Location of a job's input, and its effect on starts on other nodes."""

from collections.abc import Sequence

import numpy as np

from scheduler.placement.arrays import Float64Array, Int64Array

_INPUTS_MAX = 1_024  # per queue, each with an array of the nodes' length

Starts = tuple[tuple[float, ...], tuple[float, ...]]


class Input:
    """Output of the stages before, as it lies on the nodes.

    Attributes:
        nodes: rows of the nodes that have some of it.
        node_transfer_ms: (nodes,) transfer time of the rest to each node.
        starts_ms: ascending start times on the kinds of nodes: where the function has no container
            yet, and where it has.
    """

    __slots__ = ("node_transfer_ms", "nodes", "starts_ms")

    def __init__(self, nodes: Int64Array, node_transfer_ms: Float64Array, cold_ms: float) -> None:
        self.nodes = nodes
        self.node_transfer_ms = node_transfer_ms
        ways_ms = {float(node_transfer_ms.min()), float(node_transfer_ms.max())}
        cold = {cold_ms + way_ms for way_ms in ways_ms}
        self.starts_ms: Starts = (tuple(sorted(cold)), tuple(sorted(cold | ways_ms)))


class Inputs:
    """Inputs of one stage.

    Attributes:
        before: for each stage before it, its index and the transfer time of its output for one
            request to another node, ms.
    """

    __slots__ = ("_by_rows", "_cold_ms", "_nodes", "before")

    def __init__(self, before: Sequence[tuple[int, float]], nodes: int, cold_ms: float) -> None:
        self.before = tuple(before)
        self._nodes = nodes
        self._cold_ms = cold_ms
        self._by_rows: dict[int | tuple[int, ...], Input] = {}

    @property
    def kinds_ms(self) -> tuple[float, ...]:
        """Start times where containers exist, and the input is all on one node."""
        total_ms = sum(way_ms for _, way_ms in self.before)
        cold_ms = self._cold_ms
        return tuple(sorted({0.0, total_ms, cold_ms, cold_ms + total_ms}))

    def of(self, ran_on: Sequence[int]) -> Input:
        """Return the input of a request whose stages ran on these rows of nodes."""
        before = self.before
        rows: int | tuple[int, ...]
        if len(before) == 1:
            rows = ran_on[before[0][0]]
        elif not before:
            rows = ()
        else:
            rows = tuple(ran_on[stage] for stage, _ in before)
        located = self._by_rows.get(rows)
        if located is None:
            if len(self._by_rows) >= _INPUTS_MAX:
                self._by_rows.clear()
            located = self._by_rows[rows] = self._located(ran_on)
        return located

    def transfer_ms(self, ran_on: Sequence[int], node: int) -> float:
        """Return the transfer time of the input of a request to a node."""
        transfer_ms = 0.0
        for stage, way_ms in self.before:
            if ran_on[stage] != node:
                transfer_ms += way_ms
        return transfer_ms

    def _located(self, ran_on: Sequence[int]) -> Input:
        here_ms: dict[int, float] = {}
        for stage, way_ms in self.before:
            here_ms[ran_on[stage]] = here_ms.get(ran_on[stage], 0.0) + way_ms
        total_ms = sum(here_ms.values(), start=0.0)
        node_transfer_ms = np.full(self._nodes, total_ms)
        for row in here_ms:
            node_transfer_ms[row] = sum(ms for node, ms in here_ms.items() if node != row)
        return Input(np.array(list(here_ms), np.int64), node_transfer_ms, self._cold_ms)
