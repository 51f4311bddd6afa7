"""Series of GPUs in Prometheus' text format.

Forty thousand GPUs are seven megabytes of text. A scrape renders only the nodes that changed since
the last one, and in slices, so that it does not delay a filter call.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from scheduler.model.node import Node
from scheduler.placement.fleet import Fleet
from scheduler.placement.members import GpuSlice
from scheduler.placement.options import Limits

GPU_SERIES = {
    "esg_gpu_granted_ratio": "Granted share of the GPU; 1 is the whole GPU.",
    "esg_gpu_granted_bytes": "Granted memory of the GPU.",
}
SLICE_SERIES = {
    "esg_gpu_slice_ratio": "Share of the GPU that a pool holds, of a namespace or of a group of "
    "gateways in it; 1 is the whole.",
    "esg_gpu_slice_members": "Pods that run in the slice of the GPU.",
}
_CHANGED_SLICE = 50  # nodes rendered per turn of the event loop: half a millisecond
_NODES_SLICE = 500  # nodes compared per turn


@dataclass(frozen=True, slots=True)
class _NodeText:
    node: Node
    free_percent: list[int]
    free_memory_mib: list[int]
    lines: tuple[bytes, bytes]  # of the two series


class GpuSeries:
    """Renders the series of all GPUs of a fleet."""

    def __init__(self) -> None:
        self._texts: dict[str, _NodeText] = {}  # by the name of the node

    async def exposition(self, fleet: Fleet, limits: Limits) -> AsyncIterator[bytes]:
        """Render the text in slices; it shows one moment of the fleet."""
        first_gpus = fleet.arrays.node_first_gpu.tolist()
        percents = fleet.arrays.gpu_free_percent.tolist()
        memories_mib = fleet.arrays.gpu_free_memory_mib.tolist()
        texts: dict[str, _NodeText] = {}
        compared = rendered = 0
        for first, node in zip(first_gpus, list(fleet.nodes), strict=False):
            compared += 1
            if compared % _NODES_SLICE == 0:
                await asyncio.sleep(0)
            if node is None or not node.gpus:
                continue
            rows = slice(first, first + len(node.gpus))
            free = percents[rows], memories_mib[rows]
            text = self._texts.get(node.name)
            if (
                text is None
                or text.node is not node
                or (text.free_percent, text.free_memory_mib) != free
            ):
                text = _NodeText(node, *free, _lines(node, *free, limits))
                rendered += 1
                if rendered % _CHANGED_SLICE == 0:
                    await asyncio.sleep(0)
            texts[node.name] = text
        self._texts = texts
        of_nodes = list(texts.values())
        for number, (series, help_text) in enumerate(GPU_SERIES.items()):
            yield f"# HELP {series} {help_text}\n# TYPE {series} gauge\n".encode()
            for start in range(0, len(of_nodes), _NODES_SLICE):
                yield b"".join(
                    text.lines[number] for text in of_nodes[start : start + _NODES_SLICE]
                )
                await asyncio.sleep(0)


def slice_exposition(slices: Iterable[GpuSlice]) -> bytes:
    """Render the series of slices: a pool has few."""
    lines: list[list[str]] = [[], []]
    for slice_ in slices:
        labels = (
            f'{{namespace="{slice_.pool.namespace}",group="{_escaped(slice_.pool.group)}",'
            f'node="{slice_.node}",gpu="{_escaped(slice_.gpu_uuid)}"}}'
        )
        values = slice_.percent / 100, slice_.members
        for series, value, rows in zip(SLICE_SERIES, values, lines, strict=True):
            rows.append(f"{series}{labels} {value}\n")
    return "".join(
        f"# HELP {series} {help_text}\n# TYPE {series} gauge\n{''.join(rows)}"
        for (series, help_text), rows in zip(SLICE_SERIES.items(), lines, strict=True)
    ).encode()


def _lines(
    node: Node, free_percent: list[int], free_memory_mib: list[int], limits: Limits
) -> tuple[bytes, bytes]:
    ratios, sizes = [], []
    for gpu, percent, memory_mib in zip(node.gpus, free_percent, free_memory_mib, strict=True):
        # Node names are DNS names; a UUID is printable, but may have characters to escape.
        labels = f'{{node="{node.name}",gpu="{_escaped(gpu.uuid)}"}}'
        ratio = (limits.percent_max - percent) / 100
        granted_bytes = (gpu.memory_mib - limits.server_context_mib - memory_mib) * 2**20
        ratios.append(f"esg_gpu_granted_ratio{labels} {ratio}\n")
        sizes.append(f"esg_gpu_granted_bytes{labels} {granted_bytes}\n")
    return "".join(ratios).encode(), "".join(sizes).encode()


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"")
