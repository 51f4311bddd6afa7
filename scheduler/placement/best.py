"""Where to run now: one GPU for the first candidate that any node holds (ESG_Dispatch)."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from scheduler.placement import best_kernels, kernels
from scheduler.placement.fleet import Fleet, Float64Array, Int32Array, Int64Array
from scheduler.placement.options import FitPolicy
from scheduler.placement.placement import CandidateArrays
from scheduler.placement.scoring import FIT_MAX, HOME, PREDECESSOR, WARM, walk, walk_positions

_SCORES = np.array([FIT_MAX, HOME, WARM, PREDECESSOR], np.int64)
_GPU_MASK = (1 << best_kernels.GPU_BITS) - 1


@dataclass
class Seeker:
    """What seeks a place for the jobs of one queue, over a fleet whose nodes stay what they are.

    Attributes:
        home_key: workflow and function; what has the same key has the same home.
        cold_ms: a start where no container is.
    """

    fleet: Fleet
    home_key: str
    cold_ms: float
    policy: FitPolicy = "pack"
    _walk: tuple[int, int] = field(init=False)
    _nodes: int = field(init=False)
    _policy: int = field(init=False)
    _node_most_percent: Int32Array = field(init=False)

    def __post_init__(self) -> None:
        self._nodes = len(self.fleet.nodes)
        self._walk = walk(self.home_key, self._nodes)
        self._node_most_percent = np.empty(self._nodes, np.int32)
        self._policy = kernels.SPREAD if self.policy == "spread" else kernels.PACK

    @cached_property
    def nodes_from_home(self) -> list[int]:
        """All rows of nodes in the order of the walk from home."""
        rows = np.arange(self._nodes)
        nearest_first = np.argsort(walk_positions(self.home_key, rows, self._nodes))
        return [int(row) for row in nearest_first]

    def best(
        self,
        asks: CandidateArrays,
        gpu_ready_ms: Float64Array,
        now_ms: float,
        node_transfer_ms: Float64Array,
        predecessors: Int64Array,
    ) -> tuple[int, int] | None:
        """The candidate that decides and the row of its GPU; None where no node holds any.

        Args:
            asks: the candidates, best first; each holds where a start takes no longer than its own.
            gpu_ready_ms: (GPUs,) when a container on each GPU can run it; inf where there is none.
            now_ms: the clock.
            node_transfer_ms: (nodes,) how long the input takes to each node.
            predecessors: rows of the nodes whose output is read.
        """
        fleet = self.fleet
        home, inverse = self._walk
        packed = best_kernels.best_held(
            self._nodes, node_transfer_ms, gpu_ready_ms, now_ms, self.cold_ms,
            predecessors, home, inverse, self._policy, _SCORES,
            asks.starts_ms, asks.models, asks.percents, asks.memories_mib, asks.cpus_milli,
            fleet.node_first_gpu, fleet.node_gpus, fleet.node_free_cpu_milli,
            fleet.gpu_model, fleet.gpu_free_percent, fleet.gpu_free_memory_mib,
            fleet.gpu_free_clients, self._node_most_percent,
        )  # fmt: skip
        return None if packed < 0 else (packed >> best_kernels.GPU_BITS, packed & _GPU_MASK)
