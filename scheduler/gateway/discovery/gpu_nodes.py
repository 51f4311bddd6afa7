"""vCPUs and memory of GPU nodes for each of their GPUs: what a new pod's size depends on."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import structlog

from scheduler.dispatch.scaling.sizing import least_memory_mib
from scheduler.model.node import Node, NodeError, node_from_json

log = structlog.get_logger(__name__)
_CHANGE_RATIO = 1.1  # smaller changes move no pods


class PerGpu(NamedTuple):
    """Resources of the nodes for each of their GPUs.

    Attributes:
        vcpus: vCPUs of all nodes divided by their GPUs; None: no node has a GPU.
        memory_mib: least memory of a GPU, by model.
    """

    vcpus: float | None
    memory_mib: Mapping[str, int]


class NodeKind(NamedTuple):
    """Resources of a node whose GPUs are alike; `memory_mib` is that of one GPU."""

    gpus: int
    gpu_model: str
    cpus: int
    memory_mib: int


class GpuNodes:
    """The nodes with shareable GPUs; a reflector's handler.

    ``on_change`` gets what they have when their vCPUs have changed by a tenth, or their memory.
    """

    def __init__(self, on_change: Callable[[PerGpu], None]) -> None:
        self._on_change = on_change
        self._nodes: dict[str, Node] = {}
        self._reported = PerGpu(None, {})

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all nodes by those of a list."""
        self._nodes.clear()
        for item in items:
            self._set(item)
        self._report()

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a node."""
        self._set(item)
        self._report()

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a node."""
        self._nodes.pop(item["metadata"]["name"], None)
        self._report()

    def kinds(self) -> Counter[NodeKind]:
        """Count the nodes with healthy GPUs by kind.

        A node with unlike GPUs counts as several, among which its vCPUs are divided.
        """
        kinds: Counter[NodeKind] = Counter()
        for node in self._nodes.values():
            healthy = Counter((gpu.model, gpu.memory_mib) for gpu in node.gpus if gpu.healthy)
            for (model, memory_mib), gpus in healthy.items():
                cpus = node.cpu_milli * gpus // (1000 * healthy.total())
                kinds[NodeKind(gpus, model, cpus, memory_mib)] += 1
        return kinds

    def _set(self, raw: Mapping[str, Any]) -> None:
        name = str(raw["metadata"]["name"])
        self._nodes.pop(name, None)
        try:
            node = node_from_json(raw)
        except NodeError as error:
            log.warning("node cannot be read", node=name, problem=str(error))
        else:
            if node.gpus and node.cpu_milli:
                self._nodes[name] = node

    def _report(self) -> None:
        gpus = sum(len(node.gpus) for node in self._nodes.values())
        cpus = sum(node.cpu_milli for node in self._nodes.values()) / 1000
        memory_mib = least_memory_mib(
            (gpu.model, gpu.memory_mib) for node in self._nodes.values() for gpu in node.gpus
        )
        per_gpu = PerGpu(cpus / gpus if gpus else None, memory_mib)
        is_other_memory = per_gpu.memory_mib != self._reported.memory_mib
        if is_other_memory or _has_changed(per_gpu.vcpus, self._reported.vcpus):
            self._reported = per_gpu
            self._on_change(per_gpu)


def _has_changed(cpus_per_gpu: float | None, known_cpus_per_gpu: float | None) -> bool:
    if cpus_per_gpu is None or known_cpus_per_gpu is None:
        return cpus_per_gpu is not known_cpus_per_gpu
    return not 1.0 / _CHANGE_RATIO <= cpus_per_gpu / known_cpus_per_gpu <= _CHANGE_RATIO
