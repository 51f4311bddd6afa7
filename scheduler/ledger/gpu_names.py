"""Names of the nodes under which each GPU is known."""

from collections import defaultdict
from typing import NamedTuple


class NameConflict(NamedTuple):
    """A GPU that is known under several node names, so that nothing is placed on it.

    Attributes:
        node: name of a node that publishes it.
        gpu_index: index of the GPU on that node.
        uuid: UUID of the GPU.
        others: names of the other nodes that publish it, or whose pods have shares of it.
    """

    node: str
    gpu_index: int
    uuid: str
    others: tuple[str, ...]


class GpuNames:
    """Node names by the UUID of a GPU: of nodes that publish it, and of pods with a share of it.

    Attributes:
        shared: UUIDs that are known under several names.
    """

    def __init__(self) -> None:
        self.shared: set[str] = set()
        self._names: defaultdict[str, dict[str, int]] = defaultdict(dict)  # with their counts

    def add(self, uuid: str, node: str) -> set[str]:
        """Count a name; return all names of the GPU if it became shared, else none."""
        names = self._names[uuid]
        names[node] = names.get(node, 0) + 1
        if len(names) == 1 or uuid in self.shared:
            return set()
        self.shared.add(uuid)
        return set(names)

    def remove(self, uuid: str, node: str) -> set[str]:
        """Forget a name; return the name that is left if the GPU is not shared any more."""
        names = self._names[uuid]
        names[node] -= 1
        if not names[node]:
            del names[node]
        if not names:
            del self._names[uuid]
        if len(names) > 1 or uuid not in self.shared:
            return set()
        self.shared.discard(uuid)
        return set(names)

    def of(self, uuid: str) -> list[str]:
        """Return the names of a GPU, sorted."""
        return sorted(self._names.get(uuid, ()))

    def others(self, uuid: str, node: str) -> tuple[str, ...]:
        """Return the names of a GPU but this one, sorted."""
        return tuple(name for name in self.of(uuid) if name != node)
