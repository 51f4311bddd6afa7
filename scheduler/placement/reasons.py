"""Reasons why a node is refused, in numbers, and whether evicting pods could help."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import floor, inf

import numpy as np

from scheduler.model.node import Gpu
from scheduler.placement import kernels
from scheduler.placement.arrays import Int64Array
from scheduler.placement.candidates import CandidateTable
from scheduler.placement.fleet import Fleet
from scheduler.placement.placement import Placement


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the pod does not fit on a node; ``resolvable``: it may, if pods there are evicted."""

    reason: str
    resolvable: bool


def refusals(
    placement: Placement, names: list[str], budget_ms: float | None = None
) -> dict[str, Refusal]:
    """Return a refusal for each of the nodes on which the chosen candidate does not fit.

    Where no candidate fits anywhere, the numbers are those of the least demanding one for the
    node's GPUs and start. ``budget_ms`` is the plan's; None: time is not short.
    """
    refused = np.flatnonzero(placement.gpu_rows < 0)
    is_known = placement.node_rows[refused] >= 0
    by_name = {names[i]: NODE_NOT_KNOWN for i in refused[~is_known].tolist()}
    capacity = _NodeCapacity(placement.fleet, placement.table)
    for candidates, nodes in _reported(placement, refused[is_known]):
        remaining = nodes
        for candidate in candidates:
            if len(remaining):
                formatter = _RefusalFormatter(placement, candidate, capacity, budget_ms)
                formatted, remaining = formatter.refuse(names, remaining)
                by_name |= formatted
        for i in remaining.tolist():
            row = int(placement.node_rows[i])
            by_name[names[i]] = capacity.without_a_model(row, candidates)
    return by_name


def _reported(placement: Placement, refused: Int64Array) -> Iterator[tuple[list[int], Int64Array]]:
    """Yield the candidates that refusals report, and the nodes that they are for."""
    if placement.candidate_index is not None:
        yield [placement.candidate_index], refused
        return
    node_start_ms = placement.node_start_ms[refused]
    for start_ms in np.unique(node_start_ms).tolist():
        yield placement.table.least_demanding(start_ms), refused[node_start_ms == start_ms]


NODE_NOT_KNOWN = Refusal("the node is not known to the extender (yet)", resolvable=False)
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

    def refuse(self, names: list[str], nodes: Int64Array) -> tuple[dict[str, Refusal], Int64Array]:
        """Return refusals by name for these nodes, by index, and the nodes without such a GPU."""
        # Most lack free capacity: that case reads the arrays in one kernel call, and a Python
        # object only for the index of a GPU.
        arrays, limits = self.fleet.arrays, self.fleet.limits
        node_rows = self.placement.node_rows[nodes]
        nearest, free_max_mib = np.empty_like(node_rows), np.empty_like(node_rows)
        kernels.nearest_gpus(
            arrays, node_rows, self.model, self.percent, self.memory_mib, nearest, free_max_mib
        )
        impossible = self.percent_min > limits.percent_max
        # Thousands of nodes a call may be refused, for few distinct reasons.
        refuse_start = cache(self._refuse_start)
        refuse_cpu, refuse_gpu = cache(self._refuse_cpu), cache(self._refuse_gpu)
        gpus = self.fleet.gpus
        by_name = {}
        for i, row, gpu, node_max_mib, start_ms, cpu_milli, percent, mib, clients in zip(
            nodes.tolist(), node_rows.tolist(), nearest.tolist(), free_max_mib.tolist(),
            self.placement.node_start_ms[nodes].tolist(),
            arrays.node_free_cpu_milli[node_rows].tolist(),
            # Without a nearest GPU these are of any.
            arrays.gpu_free_percent[nearest].tolist(), arrays.gpu_free_memory_mib[nearest].tolist(),
            np.minimum(arrays.gpu_free_clients[nearest], 1).tolist(), strict=True,
        ):  # fmt: skip
            if gpu < 0:
                continue
            # Free capacity is part of the total: only where it is too small, the total may be, too.
            if impossible or node_max_mib < self.memory_min_mib:
                unresolvable = self.capacity.refuse_empty(row)
                if unresolvable is not None:
                    by_name[names[i]] = unresolvable
                    continue
            if start_ms > self.start_ms:
                by_name[names[i]] = refuse_start(start_ms)
            elif cpu_milli < self.cpu_milli:
                by_name[names[i]] = refuse_cpu(cpu_milli)
            else:
                nearest_gpu = gpus[gpu]
                index = None if nearest_gpu is None else nearest_gpu.index
                by_name[names[i]] = refuse_gpu(index, percent, mib, clients)
        return by_name, nodes[nearest < 0]

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

    def _refuse_gpu(
        self, index: int | None, percent: int, memory_mib: int, clients: int
    ) -> Refusal:
        text = (
            f"GPU {'?' if index is None else index}: "
            f"{max(percent, 0)} % free, {self.percent} % asked; "
            f"{max(memory_mib, 0):,} MiB free, {self.memory_mib:,} asked"
        )
        if clients < 1:
            text += f"; all {self.fleet.limits.clients_max} MPS clients taken"
        return Refusal(text, resolvable=True)


class _NodeCapacity:
    """Capacity of the nodes if they were empty."""

    def __init__(self, fleet: Fleet, table: CandidateTable) -> None:
        self.fleet = fleet
        self.table = table

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
