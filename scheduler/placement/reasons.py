"""Reasons why a node is refused, in numbers, and whether evicting pods could help."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import floor, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.kernel_calls import entry_point
from scheduler.model.node import Gpu
from scheduler.placement import kernels
from scheduler.placement.arrays import BoolArray, Int64Array
from scheduler.placement.candidates import CandidateTable
from scheduler.placement.fleet import Fleet
from scheduler.placement.node_names import NodeNames
from scheduler.placement.placement import Placement


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the pod does not fit on a node; ``resolvable``: it may, if pods there are evicted."""

    reason: str
    resolvable: bool


_nearest_gpus = entry_point(kernels.nearest_gpus)
Group = tuple[Refusal, list[str]]  # a refusal and the names of its nodes


class Refusals(Mapping[str, Refusal]):
    """Refusals by the name of the node.

    Thousands of nodes are refused in a call, for few distinct reasons.

    Attributes:
        groups: refusals with their nodes.
    """

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self.groups = [(refusal, names) for refusal, names in groups if names]

    @classmethod
    def of(cls, by_name: Mapping[str, Refusal]) -> "Refusals":
        """Group refusals by name."""
        groups: dict[Refusal, list[str]] = {}
        for name, refusal in by_name.items():
            groups.setdefault(refusal, []).append(name)
        return cls(groups.items())

    def __getitem__(self, name: str) -> Refusal:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return sum(len(names) for _, names in self.groups)

    @cached_property
    def _by_name(self) -> dict[str, Refusal]:
        return {name: refusal for refusal, names in self.groups for name in names}


def refusals(
    placement: Placement, names: Sequence[str], budget_ms: float | None = None
) -> Refusals:
    """Return a refusal for each of the nodes on which the chosen candidate does not fit.

    Where no candidate fits anywhere, the numbers are those of the least demanding one for the
    node's GPUs and start. ``budget_ms`` is the plan's; None: time is not short.
    """
    refused = np.flatnonzero(placement.gpu_rows < 0)
    if not len(refused):
        return Refusals()
    is_known = placement.node_rows[refused] >= 0
    members: list[tuple[Refusal, Int64Array]] = [(NODE_NOT_KNOWN, refused[~is_known])]
    capacity = _NodeCapacity(placement)
    for candidates, nodes in _reported(placement, refused[is_known]):
        remaining = nodes
        for candidate in candidates:
            if len(remaining):
                formatter = _RefusalFormatter(placement, candidate, capacity, budget_ms)
                formatted, remaining = formatter.refuse(remaining)
                members += formatted
        for row, positions in capacity.alike(remaining):
            members.append((capacity.without_a_model(row, candidates), remaining[positions]))
    node_names = NodeNames.of(names)
    return Refusals((refusal, node_names.at(indices)) for refusal, indices in members)


def _reported(placement: Placement, refused: Int64Array) -> Iterator[tuple[list[int], Int64Array]]:
    """Yield the candidates that refusals report, and the nodes that they are for."""
    if placement.candidate_index is not None:
        yield [placement.candidate_index], refused
        return
    node_start_ms = placement.node_start_ms[refused]
    for start_ms in np.unique(node_start_ms).tolist():
        yield placement.table.least_demanding(start_ms), refused[node_start_ms == start_ms]


NODE_NOT_KNOWN = Refusal("the node is not known to the extender (yet)", resolvable=False)
_INDEX_BITS, _MIB_BITS = 10, 25  # of a GPU: limits of `Gpu`
_NO_GPU = Refusal("the node has no GPU to share (no inventory annotation)", resolvable=False)


class _RefusalFormatter:
    """Refusals for one candidate."""

    def __init__(
        self,
        placement: Placement,
        index: int,
        capacity: "_NodeCapacity",
        budget_ms: float | None,
    ) -> None:
        table = placement.table
        candidate = table.candidates[index]
        self.fleet = placement.fleet
        self.placement = placement
        self.capacity = capacity
        self.model = table.arrays.model[index]
        self.percent = candidate.configuration.gpu_percent
        self.memory_mib = candidate.configuration.memory_mib
        self.cpu_milli = int(table.arrays.cpu_milli[index])
        self.start_ms = candidate.start_ms
        self.longest_start_ms = float(table.arrays.start_ms.max())
        completion_ms = candidate.path_ms - candidate.start_ms
        self.start_budget_ms = inf if budget_ms is None else budget_ms - completion_ms
        self.percent_min, self.memory_min_mib = table.minimum_of_model[candidate.gpu_model]

    def refuse(self, nodes: Int64Array) -> tuple[list[tuple[Refusal, Int64Array]], Int64Array]:
        """Return refusals for these nodes, by index, and the nodes without such a GPU."""
        arrays = self.fleet.arrays
        node_rows = self.placement.node_rows[nodes]
        nearest, free_max_mib = np.empty_like(node_rows), np.empty_like(node_rows)
        _nearest_gpus(
            arrays, node_rows, self.model, self.percent, self.memory_mib, nearest, free_max_mib
        )
        groups, too_large = self._refuse_too_large(nodes, nearest, free_max_mib)
        start_ms = self.placement.node_start_ms[nodes]
        cpu_milli = arrays.node_free_cpu_milli[node_rows]
        may_fit = (nearest >= 0) & ~too_large
        is_late = may_fit & (start_ms > self.start_ms)
        lacks_cpu = may_fit & ~is_late & (cpu_milli < self.cpu_milli)
        lacks_gpu = may_fit & ~is_late & ~lacks_cpu
        for which, keys, refuse in (
            (is_late, start_ms, self._refuse_start),
            (lacks_cpu, cpu_milli, self._refuse_cpu),
        ):
            groups += [
                (refuse(key), members) for key, members in _grouped(keys[which], nodes[which])
            ]
        gpu_rows = nearest[lacks_gpu]
        groups += [
            (self._refuse_gpu(key), members)
            for key, members in _grouped(self._gpu_keys(gpu_rows), nodes[lacks_gpu])
        ]
        return groups, nodes[nearest < 0]

    def _refuse_too_large(
        self, nodes: Int64Array, nearest: Int64Array, free_max_mib: Int64Array
    ) -> tuple[list[tuple[Refusal, Int64Array]], BoolArray]:
        """Return refusals where no eviction helps, and a mask of these nodes."""
        # Free capacity is part of the total: only where it is too small, the total may be, too.
        too_large = nearest >= 0
        if self.percent_min <= self.fleet.limits.percent_max:
            too_large &= free_max_mib < self.memory_min_mib
        groups = []
        suspects = np.flatnonzero(too_large)
        for row, positions in self.capacity.alike(nodes[suspects]):
            refusal = self.capacity.refuse_empty(row)
            too_large[suspects[positions]] = refusal is not None
            if refusal is not None:
                groups.append((refusal, nodes[suspects[positions]]))
        return groups, too_large

    def _gpu_keys(self, gpu_rows: Int64Array) -> Int64Array:
        """Return what refusals say of GPUs, in one number each."""
        arrays = self.fleet.arrays
        key: Int64Array = np.maximum(arrays.gpu_free_percent[gpu_rows], 0).astype(np.int64)
        key = key << _INDEX_BITS | arrays.gpu_index[gpu_rows]
        key = key << _MIB_BITS | np.maximum(arrays.gpu_free_memory_mib[gpu_rows], 0)
        return key << 1 | (arrays.gpu_free_clients[gpu_rows] > 0)

    def _refuse_start(self, start_ms: float) -> Refusal:
        """Refuse a start that is too long for all candidates, or for the one chosen elsewhere."""
        text = f"starts this function in {start_ms:,.0f} ms"
        if self.start_budget_ms < start_ms:
            text += f", {floor(max(self.start_budget_ms, 0.0)):,} ms are left for it"
        else:
            text += f"; the plan takes nodes that start it within {self.start_ms:,.0f} ms"
        return Refusal(text, resolvable=start_ms <= self.longest_start_ms)

    def _refuse_cpu(self, free_milli: int) -> Refusal:
        text = f"{max(free_milli, 0) / 1000:g} vCPU free, {self.cpu_milli / 1000:g} asked"
        return Refusal(text, resolvable=True)

    def _refuse_gpu(self, key: int) -> Refusal:
        has_client, free_mib = key & 1, key >> 1 & (1 << _MIB_BITS) - 1
        key >>= 1 + _MIB_BITS
        index, free_percent = key & (1 << _INDEX_BITS) - 1, key >> _INDEX_BITS
        text = (
            f"GPU {index}: {free_percent} % free, {self.percent} % asked; "
            f"{free_mib:,} MiB free, {self.memory_mib:,} asked"
        )
        if not has_client:
            text += f"; all {self.fleet.limits.clients_max} MPS clients taken"
        return Refusal(text, resolvable=True)


def _grouped(keys: NDArray[Any], nodes: Int64Array) -> Iterator[tuple[Any, Int64Array]]:
    """Yield each distinct key, and the nodes, by index, that have it."""
    if not len(keys):
        return
    order = np.argsort(keys, kind="stable")
    ordered, members = keys[order], nodes[order]
    ends = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for first, end in pairwise([0, *ends.tolist(), len(members)]):
        yield ordered[first].item(), members[first:end]


class _NodeCapacity:
    """Capacity of the nodes if they were empty."""

    def __init__(self, placement: Placement) -> None:
        self.fleet: Fleet = placement.fleet
        self.table: CandidateTable = placement.table
        self._node_rows = placement.node_rows

    def alike(self, nodes: Int64Array) -> Iterator[tuple[int, Int64Array]]:
        """Group nodes whose GPUs are alike; yield the row of one, and the positions of all."""
        rows = self._node_rows[nodes]
        for _, positions in _grouped(self.fleet.shape_number[rows], np.arange(len(rows))):
            yield int(rows[positions[0]]), positions

    def refuse_empty(self, row: int) -> Refusal | None:
        """Refuse a node on which no candidate fits even if it is empty; None where one does."""
        gpus = self._gpus(row)
        if not gpus:
            return _NO_GPU
        minima = self.table.minimum_of_model
        usable = [gpu for gpu in gpus if gpu.healthy and gpu.model in minima]
        if not usable:
            return self._refuse_gpus(gpus)
        limits = self.fleet.limits
        if any(
            percent <= limits.percent_max
            and memory_mib <= gpu.memory_mib - limits.server_context_mib
            for gpu in usable
            for percent, memory_mib in [minima[gpu.model]]
        ):
            return None
        largest = max(usable, key=lambda gpu: gpu.memory_mib)
        percent, memory_mib = minima[largest.model]
        return Refusal(
            f"too large for any GPU here: at least {percent} % and {memory_mib:,} MiB asked, "
            f"one GPU grants at most {limits.percent_max} % and "
            f"{largest.memory_mib - limits.server_context_mib:,} MiB",
            resolvable=False,
        )

    def without_a_model(self, row: int, candidates: list[int]) -> Refusal:
        """Refuse a node without a usable GPU of the candidates' models."""
        unresolvable = self.refuse_empty(row)
        if unresolvable is not None:
            return unresolvable
        here = sorted({gpu.model for gpu in self._gpus(row) if gpu.healthy})
        elsewhere = sorted({self.table.candidates[i].gpu_model for i in candidates})
        return Refusal(
            f"its GPUs are {', '.join(here)}; a cheaper candidate fits on other nodes "
            f"({', '.join(elsewhere)})",
            resolvable=True,
        )

    def _gpus(self, row: int) -> list[Gpu]:
        return [gpu for gpu in self.fleet.gpus[self.fleet.gpu_rows_of(row)] if gpu is not None]

    def _refuse_gpus(self, gpus: list[Gpu]) -> Refusal:
        models = self.table.minimum_of_model.keys()
        here = sorted({gpu.model for gpu in gpus})
        if models.isdisjoint(here):
            return Refusal(
                f"its GPUs are {', '.join(here)}; the plan fits on {', '.join(sorted(models))}",
                resolvable=False,
            )
        unhealthy = ", ".join(str(gpu.index) for gpu in gpus if not gpu.healthy)
        return Refusal(
            f"its GPUs of a fitting model are unhealthy (GPU {unhealthy})", resolvable=False
        )
