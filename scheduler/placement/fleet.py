"""The fleet: free GPU share, memory and vCPU of every node, as parallel arrays.

Five thousand nodes of eight GPUs are forty thousand rows, and a filter call reads several thousand
of them, so the kernels read arrays, never objects. Only the ledger calls the methods that write.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler.model.fleet_capacity import FleetCapacity, NodeSize
from scheduler.model.node import Gpu, Node
from scheduler.placement.arrays import FleetArrays, Int32Array, Int64Array
from scheduler.placement.node_names import NameIndex
from scheduler.placement.options import Limits

_NODE_ROWS_MIN, _GPU_ROWS_MIN = 64, 256
_COMPACT_ABOVE_ROWS = 1024  # unused GPU rows below that are not worth a pass over the arrays


class Occupancy(Protocol):
    """The capacity that one pod occupies; without a GPU (None), only vCPUs.

    Without memory on its GPU it has no process there, so no MPS client. ``is_daemon``: as long as
    the node exists.
    """

    @property
    def node(self) -> str: ...
    @property
    def cpu_milli(self) -> int: ...
    @property
    def is_daemon(self) -> bool: ...
    @property
    def gpu_uuid(self) -> str | None: ...
    @property
    def gpu_percent(self) -> int: ...
    @property
    def memory_mib(self) -> int: ...


class FleetViews:
    """Memory views of the arrays that reservations change, for access to single elements.

    A view reads and writes an element in half the time of the array, which creates a NumPy scalar
    for each number.
    """

    __slots__ = ("clients", "cpu_milli", "memory_mib", "model", "percent")

    def __init__(self, arrays: FleetArrays) -> None:
        self.cpu_milli = arrays.node_free_cpu_milli.data
        self.model = arrays.gpu_model.data
        self.percent = arrays.gpu_free_percent.data
        self.memory_mib = arrays.gpu_free_memory_mib.data
        self.clients = arrays.gpu_free_clients.data


class Fleet:
    """Rows of nodes and of GPUs, in ``arrays`` and in lists of objects.

    The arrays may be longer than the lists; their end is unused. The row of a removed node is None
    and has no GPU.

    Attributes:
        limits: limits of what the pods of one GPU may reserve together.
        arrays: arrays that the kernels read; replaced when one of them grows.
        views: views of single elements of the arrays; replaced with the arrays.
        node_row: row of each node, by name.
        nodes, gpus: objects by row.
        shape_number: equal for nodes whose GPUs are alike in model, memory, index and health;
            as long as the arrays of nodes.
    """

    __slots__ = (
        "_capacity",
        "_daemons_milli",
        "_gpu_rows",
        "_index",
        "_model_numbers",
        "_shape_numbers",
        "_sizes",
        "arrays",
        "gpus",
        "limits",
        "node_row",
        "nodes",
        "shape_number",
        "views",
    )

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.node_row: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.gpus: list[Gpu | None] = []
        self._gpu_rows: dict[str, dict[str, int]] = {}  # node -> UUID -> row
        self._model_numbers: dict[str, int] = {}  # a number is never used again
        self._shape_numbers: dict[tuple[object, ...], int] = {}  # the same
        self.shape_number: Int32Array = np.zeros(_NODE_ROWS_MIN, np.int32)
        self._index: NameIndex | None = None  # of the present rows; None: not built yet
        self._daemons_milli: dict[str, int] = {}  # thousandths of a vCPU, by node
        self._sizes: Counter[tuple[str, NodeSize]] = Counter()  # GPUs by model and size of the node
        self._capacity: FleetCapacity | None = None  # of `_sizes`; None: not computed yet
        self._use(
            FleetArrays(
                node_first_gpu=np.zeros(_NODE_ROWS_MIN, np.int32),
                node_gpus=np.zeros(_NODE_ROWS_MIN, np.int32),
                node_free_cpu_milli=np.zeros(_NODE_ROWS_MIN, np.int64),
                gpu_model=np.zeros(_GPU_ROWS_MIN, np.int32),
                gpu_free_percent=np.zeros(_GPU_ROWS_MIN, np.int32),
                gpu_free_memory_mib=np.zeros(_GPU_ROWS_MIN, np.int64),
                gpu_free_clients=np.zeros(_GPU_ROWS_MIN, np.int32),
                gpu_index=np.zeros(_GPU_ROWS_MIN, np.int32),
            )
        )

    # -- reading -------------------------------------------------------------------------------

    @property
    def capacity(self) -> FleetCapacity:
        """The largest nodes with each GPU model; it changes with the nodes and their daemons.

        An unhealthy GPU counts: it may recover.
        """
        if self._capacity is None:
            self._capacity = FleetCapacity.of(self._sizes, self.limits.percent_max)
        return self._capacity

    def model_number(self, model: str) -> int:
        """Return the number of a GPU model in ``gpu_model``, -1 where no node ever had it."""
        return self._model_numbers.get(model, -1)

    @property
    def index(self) -> NameIndex:
        """The names of all nodes; another object after each change of rows."""
        if self._index is None:
            self._index = NameIndex(self.node_row, len(self.nodes))
        return self._index

    def rows(self, names: Sequence[str]) -> Int64Array:
        """Return the row of each name, -1 where the node is not known; shape (len(names),)."""
        rows = map(self.node_row.get, names, repeat(-1))
        return np.fromiter(rows, np.int64, len(names))

    def gpu_row(self, node: str, uuid: str) -> int:
        """Return the row of that node's GPU, -1 where there is no such node or GPU."""
        rows = self._gpu_rows.get(node)
        return -1 if rows is None else rows.get(uuid, -1)

    def gpu_rows_of(self, node_row: int) -> slice:
        """Return the rows of a node's GPUs."""
        first = int(self.arrays.node_first_gpu[node_row])
        return slice(first, first + int(self.arrays.node_gpus[node_row]))

    # -- nodes ---------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add or replace a node, with everything free: the caller reserves again what is granted.

        A node keeps its row while it is known. Its GPUs keep theirs while their number does not
        change; otherwise they move to the end, and their former rows stay unused until `compact`.
        """
        row = self.node_row.get(node.name)
        if row is None:
            row = self.node_row[node.name] = self._unused_node_row()
        self._forget_gpus(row)
        self._daemons_milli.pop(node.name, None)
        arrays = self.arrays
        count = len(node.gpus)
        if int(arrays.node_gpus[row]) != count:
            self._index = None
            first = self._append_gpu_rows(count)
            arrays = self.arrays
            arrays.node_first_gpu[row] = first
            arrays.node_gpus[row] = count
        self.nodes[row] = node
        arrays.node_free_cpu_milli[row] = node.cpu_milli
        for gpu_row, gpu in enumerate(node.gpus, start=int(arrays.node_first_gpu[row])):
            number = self._model_numbers.setdefault(gpu.model, len(self._model_numbers))
            self.gpus[gpu_row] = gpu
            arrays.gpu_model[gpu_row] = number if gpu.healthy else -1
            arrays.gpu_free_percent[gpu_row] = self.limits.percent_max
            arrays.gpu_free_memory_mib[gpu_row] = gpu.memory_mib - self.limits.server_context_mib
            arrays.gpu_free_clients[gpu_row] = self.limits.clients_max
            arrays.gpu_index[gpu_row] = gpu.index
        shape = tuple((gpu.model, gpu.memory_mib, gpu.index, gpu.healthy) for gpu in node.gpus)
        self.shape_number[row] = self._shape_numbers.setdefault(shape, len(self._shape_numbers))
        self._index_gpus(node, row)
        self._count_sizes(node, +1)

    def remove_node(self, name: str) -> None:
        """Empty the node's rows; another node may take them."""
        row = self.node_row.pop(name, None)
        if row is None:
            return
        self._index = None
        del self._gpu_rows[name]
        self._forget_gpus(row)
        self._daemons_milli.pop(name, None)
        self.arrays.node_gpus[row] = 0
        self.arrays.node_free_cpu_milli[row] = 0
        self.nodes[row] = None

    def compact_if_sparse(self) -> None:
        """Compact the GPU rows where most of them are unused."""
        unused = len(self.gpus) - int(self.arrays.node_gpus[: len(self.nodes)].sum())
        if unused > _COMPACT_ABOVE_ROWS and unused > len(self.gpus) // 2:
            self.compact()

    def compact(self) -> None:
        """Move the used GPU rows together, so that node changes do not grow the arrays forever."""
        self._index = None
        arrays = self.arrays
        order: list[int] = []
        for row in range(len(self.nodes)):
            first = int(arrays.node_first_gpu[row])
            arrays.node_first_gpu[row] = len(order)
            order.extend(range(first, first + int(arrays.node_gpus[row])))
        self.gpus = [self.gpus[row] for row in order]
        length = max(len(order), _GPU_ROWS_MIN)
        self._use(
            FleetArrays._make(
                [*arrays[:3], *(np.resize(gpu_array[order], length) for gpu_array in arrays[3:])]
            )
        )
        for row, node in enumerate(self.nodes):
            if node is not None:
                self._index_gpus(node, row)

    # -- grants --------------------------------------------------------------------------------

    def reserve(self, grant: Occupancy) -> None:
        """Subtract a grant from what is free, where its node and GPU exist."""
        self._add(grant, -1)

    def release(self, grant: Occupancy) -> None:
        """Add a grant to what is free, where its node and GPU exist."""
        self._add(grant, +1)

    def _add(self, grant: Occupancy, sign: int) -> None:
        node_row = self.node_row.get(grant.node)
        if node_row is None:
            return
        views = self.views
        views.cpu_milli[node_row] += sign * grant.cpu_milli
        if grant.is_daemon:
            self._add_daemon(node_row, -sign * grant.cpu_milli)
        uuid = grant.gpu_uuid
        if uuid is None:
            return
        gpu_row = self._gpu_rows[grant.node].get(uuid, -1)
        if gpu_row >= 0:
            views.percent[gpu_row] += sign * grant.gpu_percent
            views.memory_mib[gpu_row] += sign * grant.memory_mib
            views.clients[gpu_row] += sign * (grant.memory_mib > 0)

    # -- sizes ---------------------------------------------------------------------------------

    def _add_daemon(self, node_row: int, cpu_milli: int) -> None:
        """Add to the vCPUs that daemons take of a node."""
        node = self.nodes[node_row]
        assert node is not None  # noqa: S101 - the row was found by the node's name
        self._count_sizes(node, -1)
        self._daemons_milli[node.name] = self._daemons_milli.get(node.name, 0) + cpu_milli
        self._count_sizes(node, +1)

    def _count_sizes(self, node: Node, sign: int) -> None:
        """Add the node's GPUs to the sizes, or remove them."""
        cpu_milli = node.cpu_milli - self._daemons_milli.get(node.name, 0)
        for gpu in node.gpus:
            size = NodeSize(cpu_milli, gpu.memory_mib - self.limits.server_context_mib)
            count = self._sizes[gpu.model, size] + sign
            if count:
                self._sizes[gpu.model, size] = count
            else:
                del self._sizes[gpu.model, size]
            if count == max(sign, 0):  # the size is new, or no node has it any more
                self._capacity = None

    # -- rows ----------------------------------------------------------------------------------

    def _use(self, arrays: FleetArrays) -> None:
        self.arrays = arrays
        self.views = FleetViews(arrays)

    def _index_gpus(self, node: Node, row: int) -> None:
        first = int(self.arrays.node_first_gpu[row])
        self._gpu_rows[node.name] = {gpu.uuid: i for i, gpu in enumerate(node.gpus, start=first)}

    def _forget_gpus(self, node_row: int) -> None:
        """Make the node's GPU rows match no candidate, and their sizes count no more."""
        if (node := self.nodes[node_row]) is not None:
            self._count_sizes(node, -1)
        rows = self.gpu_rows_of(node_row)
        self.gpus[rows] = [None] * (rows.stop - rows.start)
        self.arrays.gpu_model[rows] = -1

    def _unused_node_row(self) -> int:
        self._index = None
        if len(self.node_row) < len(self.nodes):  # a node was removed
            return self.nodes.index(None)
        self.nodes.append(None)
        self._grow(slice(0, 3), len(self.nodes))
        if len(self.shape_number) < len(self.arrays.node_gpus):
            self.shape_number = np.resize(self.shape_number, len(self.arrays.node_gpus))
        return len(self.nodes) - 1

    def _append_gpu_rows(self, count: int) -> int:
        first = len(self.gpus)
        self.gpus.extend([None] * count)
        self._grow(slice(3, None), len(self.gpus))
        return first

    def _grow(self, which: slice, length: int) -> None:
        """Make these of the arrays at least so long."""
        arrays: list[NDArray[Any]] = list(self.arrays)
        size = len(arrays[which][0])
        if length > size:
            missing = max(length, 2 * size) - size
            arrays[which] = [np.pad(array, (0, missing)) for array in arrays[which]]
            self._use(FleetArrays._make(arrays))
