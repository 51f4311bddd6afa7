"""The fleet: free GPU share, memory and vCPU of every node, as parallel arrays.

Five thousand nodes of eight GPUs are forty thousand rows, and a filter call looks at several
thousand of them, so the kernels read arrays, never objects. The ledger is the only writer.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.model.node import Gpu, Node

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]


class FleetViews:
    """Views on the arrays that holds add to and take from, for one cell at a time.

    A view's cell is read and written in half of the time of the array's own, which makes an object
    of NumPy's out of every number.
    """

    __slots__ = ("clients", "cpu_milli", "memory_mib", "model", "percent")

    def __init__(self, fleet: "Fleet") -> None:
        self.cpu_milli = fleet.node_free_cpu_milli.data
        self.model = fleet.gpu_model.data
        self.percent = fleet.gpu_free_percent.data
        self.memory_mib = fleet.gpu_free_memory_mib.data
        self.clients = fleet.gpu_free_clients.data


@dataclass(slots=True)
class Fleet:
    """Rows of nodes and of GPUs; a node's GPUs are ``node_gpus`` rows from ``node_first_gpu`` on.

    The row of a removed node is None and has no GPU. ``gpu_free_*`` may be negative where the
    cluster holds more than was there: an over-commit that somebody else made.
    """

    node_row: dict[str, int] = field(default_factory=dict)
    nodes: list[Node | None] = field(default_factory=list)
    node_first_gpu: Int32Array = field(default_factory=lambda: np.zeros(64, np.int32))
    node_gpus: Int32Array = field(default_factory=lambda: np.zeros(64, np.int32))
    node_free_cpu_milli: Int64Array = field(default_factory=lambda: np.zeros(64, np.int64))

    gpus: list[Gpu | None] = field(default_factory=list)
    gpu_rows: dict[str, dict[str, int]] = field(default_factory=dict)  # node -> UUID -> row
    gpu_model: Int32Array = field(default_factory=lambda: np.zeros(256, np.int32))  # -1: not usable
    gpu_free_percent: Int32Array = field(default_factory=lambda: np.zeros(256, np.int32))
    gpu_free_memory_mib: Int64Array = field(default_factory=lambda: np.zeros(256, np.int64))
    gpu_free_clients: Int32Array = field(default_factory=lambda: np.zeros(256, np.int32))

    models: list[str] = field(default_factory=list)  # model number -> NVML's name
    cells: FleetViews = field(init=False)

    def __post_init__(self) -> None:
        self.renew_cells()

    def renew_cells(self) -> None:
        """To be called by whoever replaces an array."""
        self.cells = FleetViews(self)

    def rows(self, names: list[str]) -> Int64Array:
        """The row of each name, -1 where the node is not known. Shape (len(names),)."""
        row = self.node_row.get
        return np.array([row(name, -1) for name in names], np.int64)

    def model_number(self, model: str) -> int:
        """The number of a GPU model in ``gpu_model``, -1 where no node has it."""
        try:
            return self.models.index(model)
        except ValueError:
            return -1

    def gpu_row(self, node: str, uuid: str) -> int:
        """The row of that node's GPU, -1 where the node or the GPU is not there."""
        rows = self.gpu_rows.get(node)
        return -1 if rows is None else rows.get(uuid, -1)
