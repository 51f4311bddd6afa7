"""Location of a job's input, and its effect on starts on other nodes."""

from collections.abc import Sequence

import numpy as np

from scheduler.placement.arrays import Float64Array, Int64Array

_INPUTS_MAX = 1_024  # per queue, each with an array of the nodes' length

Starts = tuple[tuple[float, ...], tuple[float, ...]]


class Input:
    """Output of the stages before, as it lies on the nodes.

    Attributes:
        nodes: rows of the nodes that have a part of the output.
        node_transfer_ms: (nodes,) transfer time of the missing parts to each node.
        starts_ms: ascending start times on the kinds of nodes: first where the function has no
            container yet, then where it has one.
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
        before: index of each stage before this one, with the transfer time of its output for one
            request between two nodes with the common bandwidth, in ms.
    """

    __slots__ = ("_by_rows", "_cold_ms", "_factors", "_slowness", "before")

    def __init__(
        self, before: Sequence[tuple[int, float]], slowness: Sequence[float], cold_ms: float
    ) -> None:
        """Take ``slowness`` as the factor of each node on those times; the slower node counts."""
        self.before = tuple(before)
        self._slowness = tuple(slowness)
        self._factors = sorted(set(slowness))
        self._cold_ms = cold_ms
        self._by_rows: dict[int | tuple[int, ...], Input] = {}

    @property
    def longest_ms(self) -> float:
        """Transfer time of the whole input to or from the slowest node."""
        return sum(way_ms for _, way_ms in self.before) * self._factors[-1]

    @property
    def kinds_ms(self) -> tuple[float, ...]:
        """Start times where containers exist, and the input is all on one node."""
        total_ms = sum(way_ms for _, way_ms in self.before)
        cold_ms = self._cold_ms
        ways_ms = {total_ms * factor for factor in self._factors}
        return tuple(sorted({0.0, cold_ms, *ways_ms, *(cold_ms + way_ms for way_ms in ways_ms)}))

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
        transfer_ms, slowness = 0.0, self._slowness
        for stage, way_ms in self.before:
            source = ran_on[stage]
            if source != node:
                transfer_ms += way_ms * max(slowness[source], slowness[node])
        return transfer_ms

    def _located(self, ran_on: Sequence[int]) -> Input:
        here_ms: dict[int, float] = {}
        for stage, way_ms in self.before:
            here_ms[ran_on[stage]] = here_ms.get(ran_on[stage], 0.0) + way_ms
        slowness = np.array(self._slowness)
        node_transfer_ms = np.zeros(len(slowness))
        for source, way_ms in here_ms.items():
            to_node_ms = way_ms * np.maximum(slowness, slowness[source])
            to_node_ms[source] = 0.0
            node_transfer_ms += to_node_ms
        return Input(np.array(list(here_ms), np.int64), node_transfer_ms, self._cold_ms)
