"""Free GPUs by node, and the orders in which policies take them."""

from collections.abc import Iterable

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement


class FreeGpus:
    """GPUs that no placement holds.

    Attributes:
        count: number of free GPUs.
    """

    def __init__(self, cluster: TrainingCluster, placements: Iterable[JobPlacement] = ()) -> None:
        used_gpus = {gpu for placement in placements for gpu in placement.gpus}
        # In descending order, so that pop() takes the lowest number.
        self._free = [
            [gpu for gpu in reversed(cluster.gpus_of(node)) if gpu not in used_gpus]
            for node in range(len(cluster.nodes))
        ]
        self._sizes = [node.gpus for node in cluster.nodes]
        self.count = sum(map(len, self._free))

    def of_node(self, node: int) -> int:
        """Return the number of free GPUs of a node."""
        return len(self._free[node])

    def take(self, node: int, gpus: int) -> tuple[int, ...]:
        """Take free GPUs of one node, lowest numbers first."""
        free = self._free[node]
        self.count -= gpus
        return tuple(free.pop() for _ in range(gpus))

    def take_emptiest_first(self, gpus: int) -> tuple[int, ...]:
        """Take from the node with most free GPUs, then from the next; ties: the first node."""
        selected: tuple[int, ...] = ()
        while len(selected) < gpus:
            node = max(range(len(self._free)), key=self.of_node)
            available = min(self.of_node(node), gpus - len(selected))
            selected += self.take(node, available)
        return selected

    def take_consolidated(self, gpus: int) -> tuple[int, ...]:
        """Take from the first node that has enough, or whole free nodes; empty: none has."""
        for node in range(len(self._free)):
            if self.of_node(node) >= gpus:
                return self.take(node, gpus)
        missing = gpus
        nodes: list[tuple[int, int]] = []
        for node, size in enumerate(self._sizes):
            if missing > 0 and self.of_node(node) == size and gpus > size:
                nodes.append((node, min(size, missing)))
                missing -= nodes[-1][1]
        if missing > 0:
            return ()
        return tuple(gpu for node, count in nodes for gpu in self.take(node, count))
