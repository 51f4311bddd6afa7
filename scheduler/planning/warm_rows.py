"""Rows of the nodes on which a function is warm, kept until these nodes or the fleet change."""

from dataclasses import dataclass
from math import inf

import numpy as np

from scheduler.placement.arrays import BoolArray, Float64Array
from scheduler.placement.fleet import Fleet
from scheduler.placement.node_names import NameIndex

_FUNCTIONS_MAX = 32  # with 40,000 GPUs each takes 320 KB


@dataclass(frozen=True, slots=True)
class WarmRows:
    """Nodes on which a function is warm, in one layout of the fleet.

    Attributes:
        is_warm: (rows + 1,) true for warm nodes; false at the end, the row -1 of unknown nodes.
        gpu_ready_ms: (GPUs,) -inf on warm nodes, else inf. A warm node has a container that is
            ready on every GPU, for all that is known.
    """

    names: frozenset[str]
    index: NameIndex
    is_warm: BoolArray
    gpu_ready_ms: Float64Array

    @classmethod
    def of(cls, fleet: Fleet, names: frozenset[str]) -> "WarmRows":
        """Look the nodes up in a fleet."""
        rows = fleet.rows(list(names))
        rows = rows[rows >= 0]
        is_warm = np.zeros(len(fleet.nodes) + 1, np.bool_)
        is_warm[rows] = True
        gpu_ready_ms = np.full(len(fleet.arrays.gpu_model), inf)
        first_gpu, gpus = (
            fleet.arrays.node_first_gpu[rows, None],
            fleet.arrays.node_gpus[rows, None],
        )
        offset = np.arange(gpus.max(initial=0))
        gpu_ready_ms[(first_gpu + offset)[offset < gpus]] = -inf
        return cls(names, fleet.index, is_warm, gpu_ready_ms)


class WarmRowsCache:
    """Rows of the functions that were placed last."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._by_function: dict[tuple[str, str], WarmRows] = {}  # the latest last

    def get(self, function: tuple[str, str], names: frozenset[str]) -> WarmRows:
        """Return the rows of a function, by namespace and name, that is warm on these nodes."""
        rows = self._by_function.pop(function, None)
        # Equal sets are compared element by element, unless they are the same.
        is_current = rows is not None and (rows.names is names or rows.names == names)
        if rows is None or not is_current or rows.index is not self._fleet.index:
            rows = WarmRows.of(self._fleet, names)
        self._by_function[function] = rows
        if len(self._by_function) > _FUNCTIONS_MAX:
            del self._by_function[next(iter(self._by_function))]
        return rows
