"""Naive twin of the kernels of placement: slow and obvious."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FreeGpu:
    row: int
    model: int
    percent: int
    memory_mib: int
    clients: int


@dataclass(frozen=True)
class FreeNode:
    cpu_milli: int
    gpus: tuple[FreeGpu, ...]
    start_ms: float = 0.0


@dataclass(frozen=True)
class Ask:
    model: int
    percent: int
    memory_mib: int
    cpu_milli: int
    start_ms: float = 0.0


def choose_gpu(node: FreeNode | None, ask: Ask, *, spread: bool) -> int:
    """Return the row of the fitting GPU with the least (spread: most) free share; -1: none."""
    if node is None or node.cpu_milli < ask.cpu_milli or node.start_ms > ask.start_ms:
        return -1
    fitting = [
        gpu
        for gpu in node.gpus
        if gpu.model == ask.model
        and gpu.percent >= ask.percent
        and gpu.memory_mib >= ask.memory_mib
        and gpu.clients >= 1
    ]
    sign = -1 if spread else 1
    fitting.sort(key=lambda gpu: (sign * gpu.percent, sign * gpu.memory_mib, gpu.row))
    return fitting[0].row if fitting else -1


def first_feasible(
    nodes: list[FreeNode | None], asks: list[Ask], *, spread: bool
) -> tuple[int, list[int]]:
    """Return the first candidate that fits on any node, and its GPU on each node; -1: none."""
    for index, ask in enumerate(asks):
        rows = [choose_gpu(node, ask, spread=spread) for node in nodes]
        if any(row >= 0 for row in rows):
            return index, rows
    return -1, [-1] * len(nodes)


def nearest_gpu(node: FreeNode, ask: Ask) -> tuple[int, int]:
    """Return the row of the nearest GPU, and the most memory free on one; -1 and 0: no GPU."""
    usable = [gpu for gpu in node.gpus if gpu.model == ask.model]
    if not usable:
        return -1, 0
    nearest = max(
        usable,
        key=lambda gpu: (
            min(gpu.percent - ask.percent, 0),
            min(gpu.memory_mib - ask.memory_mib, 0),
            gpu.clients,
        ),
    )
    return nearest.row, max(gpu.memory_mib for gpu in usable)
