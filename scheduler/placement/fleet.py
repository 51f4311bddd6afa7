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
    gpu_model: Int32Array = field(default_factory=lambda: np.zeros(256, np.int32))  # -1: not usable
    gpu_free_percent: Int32Array = field(default_factory=lambda: np.zeros(256, np.int32))
    gpu_free_memory_mib: Int64Array = field(default_factory=lambda: np.zeros(256, np.int64))
    gpu_free_clients: Int32Array = field(default_factory=lambda: np.zeros(256, np.int32))

    models: list[str] = field(default_factory=list)  # model number -> NVML's name

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
        node_row = self.node_row.get(node, -1)
        if node_row < 0:
            return -1
        first = int(self.node_first_gpu[node_row])
        for row in range(first, first + int(self.node_gpus[node_row])):
            gpu = self.gpus[row]
            if gpu is not None and gpu.uuid == uuid:
                return row
        return -1
