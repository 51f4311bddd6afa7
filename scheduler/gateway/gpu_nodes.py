"""vCPUs of GPU nodes for each of their GPUs: what the size of a new pod depends on."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from scheduler.model.node import Node, NodeError, node_from_json

log = structlog.get_logger(__name__)
_CHANGE_RATIO = 1.1  # smaller changes move no pods


class GpuNodes:
    """The nodes with shareable GPUs; a reflector's handler.

    ``on_change`` gets the vCPUs of all nodes divided by their GPUs, when this has changed by a
    tenth; None: no node has a GPU.
    """

    def __init__(self, on_change: Callable[[float | None], None]) -> None:
        self._on_change = on_change
        self._nodes: dict[str, Node] = {}
        self._cpus_per_gpu: float | None = None  # as reported

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
        cpus_per_gpu = cpus / gpus if gpus else None
        if _has_changed(cpus_per_gpu, self._cpus_per_gpu):
            self._cpus_per_gpu = cpus_per_gpu
            self._on_change(cpus_per_gpu)


def _has_changed(cpus_per_gpu: float | None, known_cpus_per_gpu: float | None) -> bool:
    if cpus_per_gpu is None or known_cpus_per_gpu is None:
        return cpus_per_gpu is not known_cpus_per_gpu
    return not 1.0 / _CHANGE_RATIO <= cpus_per_gpu / known_cpus_per_gpu <= _CHANGE_RATIO
