"""Naive twin of the kernels of fragmentation: slow and obvious."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count, takewhile

from scheduler.placement.fragmentation import RequestClass


@dataclass(frozen=True)
class FreeGpu:
    row: int
    model: int
    percent: int
    memory_mib: int
    clients: int

    def holds(self, ask: RequestClass) -> bool:
        return (
            self.percent >= ask.gpu_percent
            and self.memory_mib >= ask.memory_mib
            and self.clients >= 1
        )

    def granting(self, ask: RequestClass) -> "FreeGpu":
        return replace(
            self,
            percent=self.percent - ask.gpu_percent,
            memory_mib=self.memory_mib - ask.memory_mib,
            clients=self.clients - 1,
        )


@dataclass(frozen=True)
class FreeNode:
    cpu_milli: int
    gpus: tuple[FreeGpu, ...]  # of one model

    def granting(self, ask: RequestClass, row: int) -> "FreeNode":
        gpus = tuple(gpu.granting(ask) if gpu.row == row else gpu for gpu in self.gpus)
        return FreeNode(self.cpu_milli - ask.cpu_milli, gpus)


def of_use(gpu: FreeGpu, ask: RequestClass) -> int:
    """Return the share of a GPU that requests of one class use: all, if all of them fit.

    "Do": have memory and clients for as many as it takes to ask for all of the share.
    """
    if not gpu.holds(ask):
        return 0
    served = list(
        takewhile(lambda n: n <= gpu.clients and n * ask.memory_mib <= gpu.memory_mib, count(1))
    )
    return min(gpu.percent, len(served) * ask.gpu_percent)


def fragment(node: FreeNode, mix: Mapping[RequestClass, int]) -> int:
    """Return the free share that the mix could not use, summed over its requests."""
    free = sum(max(gpu.percent, 0) for gpu in node.gpus)
    lost = 0
    for ask, times in mix.items():
        usable = sum(of_use(gpu, ask) for gpu in node.gpus)
        if ask.cpu_milli:
            pods = len([n for n in range(1, 200) if n * ask.cpu_milli <= node.cpu_milli])
            usable = min(usable, pods * ask.gpu_percent)
        lost += times * (free - usable)
    return lost


def least_growth(
    node: FreeNode,
    ask: RequestClass,
    mix: Mapping[RequestClass, int],
    rows: Collection[int] | None = None,
) -> tuple[int, int]:
    """Return the GPU, one of ``rows``, where the ask adds least to fragmentation, and how much."""
    growths = {
        gpu.row: fragment(node.granting(ask, gpu.row), mix) - fragment(node, mix)
        for gpu in node.gpus
        if gpu.holds(ask) and (rows is None or gpu.row in rows)
    }
    gpus = {gpu.row: gpu for gpu in node.gpus}
    row = min(growths, key=lambda row: (growths[row], gpus[row].percent, gpus[row].memory_mib, row))
    return row, growths[row]
