"""Mocked GPU nodes: Node objects with the annotation of the node agent."""

import json
import uuid
from typing import Any

from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT

_MEMORY = "128Gi"
_PODS = 110  # the kubelet's default limit of pods on a node


def gpu_nodes(
    count: int,
    gpus_per_node: int,
    *,
    cpu: int = 16,
    unhealthy: frozenset[tuple[int, int]] = frozenset(),
    name_prefix: str = "node",
) -> list[dict[str, Any]]:
    """Create Node objects named `<name_prefix>-000` and up.

    Args:
        count: number of nodes.
        gpus_per_node: GPUs of one node; 0: ordinary nodes, without the annotation.
        cpu: vCPUs of a node.
        unhealthy: (node number, GPU index) of the unhealthy GPUs.
        name_prefix: separates several sets of nodes.
    """
    nodes = []
    for number in range(count):
        name = f"{name_prefix}-{number:03d}"
        failed = frozenset(index for node, index in unhealthy if node == number)
        inventory = gpu_inventory(name, gpus_per_node, unhealthy=failed)
        nodes.append(gpu_node(name, inventory, cpu=cpu))
    return nodes


def gpu_inventory(
    node_name: str, gpus: int, *, unhealthy: frozenset[int] = frozenset()
) -> list[dict[str, Any]]:
    """Create the agent's inventory of a node's GPUs; node name and index decide the UUIDs."""
    return [
        {
            "index": index,
            "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node_name}/{index}')}",
            "model": "NVIDIA A100-SXM4-80GB",
            "memory_mib": 81_920,
            "multiprocessors": 108,
            "healthy": index not in unhealthy,
        }
        for index in range(gpus)
    ]


def gpu_node(name: str, inventory: list[dict[str, Any]], *, cpu: int = 16) -> dict[str, Any]:
    """Create a Node object with this inventory; an empty one makes an ordinary node."""
    amounts = {"cpu": str(cpu), "memory": _MEMORY, "pods": str(_PODS)}
    annotations = {"kwok.x-k8s.io/node": "fake"}
    if inventory:
        healthy = sum(gpu["healthy"] for gpu in inventory)
        amounts[RESOURCE_GPU_PERCENT] = str(100 * healthy)
        annotations[ANNOTATION_GPUS] = json.dumps(inventory)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "annotations": annotations,
        },
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }
