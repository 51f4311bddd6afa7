"""Rows of the fleet for nodes that come, change and go: where the arrays grow and are reused."""

import numpy as np
from numpy.typing import NDArray

from scheduler.model.node import Node
from scheduler.placement.fleet import Fleet
from scheduler.placement.options import Limits


def write_node(fleet: Fleet, node: Node, limits: Limits) -> None:
    """Give the node its rows, with everything free; what it holds is subtracted by the caller.

    A node keeps its row while it is known. Its GPUs keep theirs while their number does not change;
    otherwise they move to the end, and the old rows wait for `compact`.
    """
    row = fleet.node_row.get(node.name)
    if row is None:
        row = _free_node_row(fleet)
        fleet.node_row[node.name] = row
        fleet.node_gpus[row] = 0
        fleet.node_first_gpu[row] = 0
    count = len(node.gpus)
    if int(fleet.node_gpus[row]) != count:
        clear_gpus(fleet, row)
        fleet.node_first_gpu[row] = _append_gpus(fleet, count)
        fleet.node_gpus[row] = count
    fleet.nodes[row] = node
    fleet.node_free_cpu_milli[row] = node.cpu_milli
    for gpu_row, gpu in enumerate(node.gpus, start=int(fleet.node_first_gpu[row])):
        if gpu.model not in fleet.models:
            fleet.models.append(gpu.model)
        fleet.gpus[gpu_row] = gpu
        fleet.gpu_model[gpu_row] = fleet.models.index(gpu.model) if gpu.healthy else -1
        fleet.gpu_free_percent[gpu_row] = limits.percent_max
        fleet.gpu_free_memory_mib[gpu_row] = gpu.memory_mib - limits.server_context_mib
        fleet.gpu_free_clients[gpu_row] = limits.clients_max
    _index_gpus(fleet, node, row)


def remove_node(fleet: Fleet, name: str) -> None:
    """Empty the node's rows; another node may take them."""
    row = fleet.node_row.pop(name, None)
    if row is None:
        return
    fleet.gpu_rows.pop(name, None)
    clear_gpus(fleet, row)
    fleet.node_gpus[row] = 0
    fleet.node_free_cpu_milli[row] = 0
    fleet.nodes[row] = None


def clear_gpus(fleet: Fleet, node_row: int) -> None:
    """Make the node's GPU rows match nothing."""
    first = int(fleet.node_first_gpu[node_row])
    for gpu_row in range(first, first + int(fleet.node_gpus[node_row])):
        fleet.gpus[gpu_row] = None
        fleet.gpu_model[gpu_row] = -1


def wasted_gpu_rows(fleet: Fleet) -> int:
    """GPU rows that no node owns."""
    return len(fleet.gpus) - int(fleet.node_gpus[: len(fleet.nodes)].sum())


def compact_gpus(fleet: Fleet) -> None:
    """Move the GPU rows in use together: the arrays do not grow with the cluster's history."""
    order: list[int] = []
    for row in range(len(fleet.nodes)):
        first = int(fleet.node_first_gpu[row])
        fleet.node_first_gpu[row] = len(order)
        order.extend(range(first, first + int(fleet.node_gpus[row])))
    fleet.gpus = [fleet.gpus[row] for row in order]
    for name in ("gpu_model", "gpu_free_percent", "gpu_free_memory_mib", "gpu_free_clients"):
        rows: NDArray[np.generic] = getattr(fleet, name)
        setattr(fleet, name, np.resize(rows[order], max(len(order), 256)))
    fleet.renew_cells()
    for row, node in enumerate(fleet.nodes):
        if node is not None:
            _index_gpus(fleet, node, row)


def _index_gpus(fleet: Fleet, node: Node, row: int) -> None:
    first = int(fleet.node_first_gpu[row])
    fleet.gpu_rows[node.name] = {gpu.uuid: i for i, gpu in enumerate(node.gpus, start=first)}


def _free_node_row(fleet: Fleet) -> int:
    if len(fleet.node_row) < len(fleet.nodes):  # somebody left
        return fleet.nodes.index(None)
    row = len(fleet.nodes)
    fleet.nodes.append(None)
    for name in ("node_first_gpu", "node_gpus", "node_free_cpu_milli"):
        _grow(fleet, name, row + 1)
    return row


def _append_gpus(fleet: Fleet, count: int) -> int:
    first = len(fleet.gpus)
    fleet.gpus.extend([None] * count)
    for name in ("gpu_model", "gpu_free_percent", "gpu_free_memory_mib", "gpu_free_clients"):
        _grow(fleet, name, first + count)
    return first


def _grow(fleet: Fleet, name: str, length: int) -> None:
    rows: NDArray[np.generic] = getattr(fleet, name)
    if length > rows.shape[0]:
        grown = np.zeros(max(length, 2 * rows.shape[0]), rows.dtype)
        grown[: rows.shape[0]] = rows
        setattr(fleet, name, grown)
        fleet.renew_cells()
