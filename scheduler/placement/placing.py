"""From candidates to nodes: the first candidate that any node holds decides (ESG_Dispatch)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.placement import kernels
from scheduler.placement.fleet import Fleet, Int32Array, Int64Array

Policy = Literal["pack", "spread"]


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """What the pod requests whatever its configuration: Kubernetes counts requests, so do we."""

    container_milli: int = 0  # of the container that gets the GPU
    beside_milli: int = 0  # of the pod's other containers

    def with_configuration(self, cpu: int) -> int:
        """What the pod takes of a node with ``cpu`` vCPUs planned, in thousandths."""
        return max(self.container_milli, cpu * 1000) + self.beside_milli


class Asks:
    """The candidates of one plan as the arrays that the kernels read."""

    def __init__(
        self, fleet: Fleet, candidates: Sequence[Candidate], cpu: "CpuRequest | None" = None
    ) -> None:
        self.candidates = tuple(candidates)
        cpu = cpu or CpuRequest()
        count = len(self.candidates)
        self.models: Int32Array = np.empty(count, np.int32)
        self.percents: Int32Array = np.empty(count, np.int32)
        self.memories_mib: Int64Array = np.empty(count, np.int64)
        self.cpus_milli: Int64Array = np.empty(count, np.int64)
        for i, candidate in enumerate(self.candidates):
            configuration = candidate.configuration
            # A model that no node has must match no GPU, not even the unusable ones (-1).
            model = fleet.model_number(candidate.gpu_model)
            self.models[i] = model if model >= 0 else np.iinfo(np.int32).max
            self.percents[i] = configuration.gpu_percent
            self.memories_mib[i] = configuration.memory_mib
            self.cpus_milli[i] = cpu.with_configuration(configuration.cpu)

    @cached_property
    def smallest(self) -> int:
        """Index of the least demanding candidate: what a full node is told it lacks."""
        return min(
            range(len(self.candidates)),
            key=lambda i: (
                int(self.percents[i]),
                int(self.memories_mib[i]),
                int(self.cpus_milli[i]),
            ),
        )


@dataclass(frozen=True, slots=True)
class Placing:
    """What the nodes asked about can hold.

    ``chosen`` is the index of the candidate that decides, None where no node holds any;
    ``gpu_rows`` (n,) is the GPU row it would take on each node, -1 where the node cannot hold it.
    """

    asks: Asks
    node_rows: Int64Array
    chosen: int | None
    gpu_rows: Int64Array

    @property
    def candidate(self) -> Candidate | None:
        """The candidate that decides."""
        return None if self.chosen is None else self.asks.candidates[self.chosen]


def place(
    fleet: Fleet,
    candidates: Sequence[Candidate],
    node_rows: Int64Array,
    *,
    policy: Policy = "pack",
    cpu: CpuRequest | None = None,
) -> Placing:
    """Try the candidates in order; the first that any of the nodes holds decides."""
    asks = Asks(fleet, candidates, cpu)
    gpu_rows = np.full(node_rows.shape[0], -1, np.int64)
    chosen = kernels.first_held(
        node_rows, asks.models, asks.percents, asks.memories_mib, asks.cpus_milli,
        kernels.SPREAD if policy == "spread" else kernels.PACK,
        fleet.node_first_gpu, fleet.node_gpus, fleet.node_free_cpu_milli,
        fleet.gpu_model, fleet.gpu_free_percent, fleet.gpu_free_memory_mib, fleet.gpu_free_clients,
        gpu_rows,
    )  # fmt: skip
    return Placing(asks, node_rows, None if chosen < 0 else int(chosen), gpu_rows)
