"""Free GPUs, CPUs and memory by node, for policies that divide them by demand."""

from collections.abc import Sequence
from typing import NamedTuple

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement


class GpuShare(NamedTuple):
    """CPUs and memory for one GPU."""

    cpus: int
    memory_gib: float


class _Holding(NamedTuple):
    gpus: tuple[int, ...]
    share: GpuShare  # for each of them


class NodeShares:
    """GPUs, CPUs and memory that one decision gives to jobs.

    Attributes:
        fair: proportional share of a GPU, on the node with the smallest one.
    """

    def __init__(self, cluster: TrainingCluster) -> None:
        self._cluster = cluster
        self._cpus = [node.cpus for node in cluster.nodes]
        self._memory_gib = [node.memory_gib for node in cluster.nodes]
        self._free = list(range(cluster.gpus))  # ascending
        self._holdings: dict[str, _Holding] = {}
        self.fair = GpuShare(
            min(node.cpus // node.gpus for node in cluster.nodes),
            min(node.memory_gib / node.gpus for node in cluster.nodes),
        )

    def take(self, name: str, gpus: int, share: GpuShare) -> bool:
        """Take the first GPUs whose nodes have the share free for each; False: too few."""
        selected: list[int] = []
        for gpu in self._free:
            if len(selected) == gpus:
                break
            node = self._cluster.node_of[gpu]
            if self._cpus[node] >= share.cpus and self._memory_gib[node] >= share.memory_gib:
                self._reserve((gpu,), share)
                selected.append(gpu)
        if len(selected) < gpus:
            self._release(selected, share)
            return False
        self._free = [gpu for gpu in self._free if gpu not in selected]
        self._holdings[name] = _Holding(tuple(selected), share)
        return True

    def take_from_neighbours(self, name: str, gpus: int) -> bool:
        """Take the last free GPUs with the proportional share, for which neighbours are cut.

        First those with most CPUs for a GPU, of these the newest.
        """
        nodes = {self._cluster.node_of[gpu] for gpu in self._free[-gpus:]}
        neighbours = [
            (neighbour, holding)
            for neighbour, holding in reversed(self._holdings.items())
            if nodes & {self._cluster.node_of[gpu] for gpu in holding.gpus}
        ]
        neighbours.sort(key=lambda item: -item[1].share.cpus)
        for neighbour, holding in neighbours:
            self._cut(neighbour, holding)
            if self.take(name, gpus, self.fair):
                return True
        return False

    def placements(self) -> dict[str, JobPlacement]:
        """Return the GPUs, CPUs and memory of each job."""
        return {
            name: JobPlacement(gpus, len(gpus) * share.cpus, len(gpus) * share.memory_gib)
            for name, (gpus, share) in self._holdings.items()
        }

    def _cut(self, name: str, holding: _Holding) -> None:
        share = GpuShare(
            min(holding.share.cpus, self.fair.cpus),
            min(holding.share.memory_gib, self.fair.memory_gib),
        )
        if share != holding.share:
            self._release(holding.gpus, holding.share)
            self._reserve(holding.gpus, share)
            self._holdings[name] = _Holding(holding.gpus, share)

    def _reserve(self, gpus: Sequence[int], share: GpuShare) -> None:
        for gpu in gpus:
            node = self._cluster.node_of[gpu]
            self._cpus[node] -= share.cpus
            self._memory_gib[node] -= share.memory_gib

    def _release(self, gpus: Sequence[int], share: GpuShare) -> None:
        self._reserve(gpus, GpuShare(-share.cpus, -share.memory_gib))
