"""Training cluster: nodes with whole GPUs, which are numbered through all nodes."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class TrainingNode:
    """Capacity of one node.

    Attributes:
        gpus: number of GPUs.
        gpu_model: model of the GPUs, where models differ in speed.
        cpus, memory_gib: CPUs and memory, for environments that share them out.
        cost_per_h, gpu_cost_per_h: costs of a node in use, and of each of its GPUs in use.
    """

    gpus: int
    gpu_model: str = ""
    cpus: int = 0
    memory_gib: float = 0.0
    cost_per_h: float = 0.0
    gpu_cost_per_h: float = 0.0


@dataclass(frozen=True)
class TrainingCluster:
    """Nodes in order; GPU numbers begin at the first node and have no gaps.

    Attributes:
        absent: indices of nodes that have left; their GPUs keep their numbers.
    """

    nodes: tuple[TrainingNode, ...]
    absent: frozenset[int] = frozenset()

    @classmethod
    def uniform(cls, nodes: int, gpus: int) -> "TrainingCluster":
        """Return a cluster of equal nodes."""
        return cls((TrainingNode(gpus),) * nodes)

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """Index of the node of each GPU."""
        return tuple(n for n, node in enumerate(self.nodes) for _ in range(node.gpus))

    @cached_property
    def first_gpu(self) -> tuple[int, ...]:
        """Number of the first GPU of each node."""
        firsts = [0]
        for node in self.nodes:
            firsts.append(firsts[-1] + node.gpus)
        return tuple(firsts[:-1])

    @cached_property
    def gpus(self) -> int:
        """Number of GPUs of the nodes that are present."""
        return sum(len(self.gpus_of(node)) for node in range(len(self.nodes)))

    def gpus_of(self, node: int) -> range:
        """Return the GPU numbers of a node, none if it is absent."""
        first = self.first_gpu[node]
        return range(first, first + self.nodes[node].gpus * (node not in self.absent))
