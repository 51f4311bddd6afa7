"""Why a node was refused, in numbers, and whether evicting pods could change it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, inf

import numpy as np

from scheduler.model.node import Gpu
from scheduler.placement import kernels
from scheduler.placement.fleet import Fleet, Int64Array
from scheduler.placement.options import Limits
from scheduler.placement.placement import CandidateArrays, Placement


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not hold the pod; ``resolvable``: it might, if pods there were evicted."""

    reason: str
    resolvable: bool


def refusals(
    fleet: Fleet,
    placing: Placement,
    names: list[str],
    limits: Limits,
    budget_ms: float | None = None,
) -> dict[str, Refusal]:
    """A refusal for each of the nodes that does not hold the deciding candidate.

    Where no candidate is held anywhere, the numbers are those of the least demanding one for the
    node's GPUs and start. ``budget_ms`` is the plan's; None: time is not short.
    """
    refused = np.flatnonzero(placing.gpu_rows < 0)
    known = placing.node_rows[refused] >= 0
    told = {names[i]: _NOT_KNOWN for i in refused[~known].tolist()}
    refused = refused[known]
    hopes = _NodeCapacity(fleet, placing.asks, limits)
    for asks, at in _told_of(placing, refused):
        left = at
        for ask in asks:
            if len(left):
                more, left = _RefusalFormatter(fleet, placing, ask, hopes, budget_ms).of(
                    names, left
                )
                told |= more
        for i in left.tolist():
            told[names[i]] = hopes.without_a_model(int(placing.node_rows[i]), asks)
    return told


def _told_of(placing: Placement, refused: Int64Array) -> Iterator[tuple[list[int], Int64Array]]:
    """The candidates that refused nodes are told of, and which nodes those are."""
    if placing.chosen is not None:
        yield [placing.chosen], refused
        return
    node_start_ms = placing.node_start_ms[refused]
    for start_ms in np.unique(node_start_ms).tolist():
        yield placing.asks.least_demanding(start_ms), refused[node_start_ms == start_ms]


_NOT_KNOWN = Refusal("the node is not known to the extender (yet)", resolvable=False)
_NO_GPU = Refusal("the node has no GPU to share (no inventory annotation)", resolvable=False)


class _RefusalFormatter:
    """What nodes are told of one candidate."""

    def __init__(
        self,
        fleet: Fleet,
        placing: Placement,
        ask: int,
        hopes: "_NodeCapacity",
        budget_ms: float | None,
    ) -> None:
        asks = placing.asks
        candidate = asks.candidates[ask]
        self.fleet = fleet
        self.placing = placing
        self.hopes = hopes
        self.model = asks.models[ask]
        self.percent = candidate.configuration.gpu_percent
        self.memory_mib = candidate.configuration.memory_mib
        self.cpu_milli = int(asks.cpus_milli[ask])
        self.start_ms = candidate.start_ms
        self.longest_start_ms = float(asks.starts_ms.max())
        completion_ms = candidate.path_ms - candidate.start_ms
        self.left_ms = inf if budget_ms is None else budget_ms - completion_ms
        self.least_percent, self.least_memory_mib = asks.least_of_model[candidate.gpu_model]
        # Some hundreds of nodes a call are told these words.
        self.percent_asked = f"{self.percent} % asked"
        self.memory_asked = f"{self.memory_mib:,} asked"

    def of(self, names: list[str], at: Int64Array) -> tuple[dict[str, Refusal], Int64Array]:
        """Refusals by name for the nodes ``at`` these places; and those without such a GPU."""
        # Mostly they want for room: that case reads the arrays in one kernel call, and Python
        # objects for the index of a GPU alone.
        fleet = self.fleet
        node_rows = self.placing.node_rows[at]
        nearest, most_free_mib = np.empty_like(node_rows), np.empty_like(node_rows)
        kernels.nearest_gpus(
            node_rows, self.model, self.percent, self.memory_mib,
            fleet.node_first_gpu, fleet.node_gpus,
            fleet.gpu_model, fleet.gpu_free_percent, fleet.gpu_free_memory_mib,
            fleet.gpu_free_clients, nearest, most_free_mib,
        )  # fmt: skip
        impossible = self.least_percent > self.hopes.limits.percent_max
        node_start_ms = self.placing.node_start_ms[at]
        free_cpu_milli = fleet.node_free_cpu_milli[node_rows]
        free_percent = fleet.gpu_free_percent[nearest]  # of any GPU where there is no nearest
        free_mib = fleet.gpu_free_memory_mib[nearest]
        free_clients = fleet.gpu_free_clients[nearest]
        told = {}
        for i, row, gpu, most_mib, start_ms, cpu_milli, percent, mib, clients in zip(
            at.tolist(), node_rows.tolist(), nearest.tolist(), most_free_mib.tolist(),
            node_start_ms.tolist(), free_cpu_milli.tolist(), free_percent.tolist(),
            free_mib.tolist(), free_clients.tolist(), strict=True,
        ):  # fmt: skip
            if gpu < 0:
                continue
            # What is free is part of what there is: only where it is too little may that be too.
            if impossible or most_mib < self.least_memory_mib:
                hopeless = self.hopes.none(row)
                if hopeless is not None:
                    told[names[i]] = hopeless
                    continue
            if start_ms > self.start_ms:
                told[names[i]] = self._slowness(start_ms)
                continue
            if cpu_milli < self.cpu_milli:
                text = f"{max(cpu_milli, 0) / 1000:g} vCPU free, {self.cpu_milli / 1000:g} asked"
            else:
                text = self._fullness(gpu, percent, mib, clients)
            told[names[i]] = Refusal(text, resolvable=True)
        return told, at[nearest < 0]

    def _slowness(self, start_ms: float) -> Refusal:
        """The start takes too long: for any candidate, or for the one that decides elsewhere."""
        text = f"starts this function in {start_ms:,.0f} ms"
        if self.left_ms < start_ms:
            text += f", {floor(max(self.left_ms, 0.0)):,} ms are left for it"
        else:
            text += f"; the plan takes nodes that start it within {self.start_ms:,.0f} ms"
        return Refusal(text, resolvable=start_ms <= self.longest_start_ms)

    def _fullness(self, row: int, percent: int, memory_mib: int, clients: int) -> str:
        """The GPU that comes nearest, and what it has against what is asked."""
        gpu = self.fleet.gpus[row]
        text = (
            f"GPU {'?' if gpu is None else gpu.index}: "
            f"{max(percent, 0)} % free, {self.percent_asked}; "
            f"{max(memory_mib, 0):,} MiB free, {self.memory_asked}"
        )
        if clients < 1:
            text += f"; all {self.hopes.limits.clients_max} MPS clients taken"
        return text


class _NodeCapacity:
    """What a node could hold if it were empty."""

    def __init__(self, fleet: Fleet, asks: CandidateArrays, limits: Limits) -> None:
        self.fleet = fleet
        self.asks = asks
        self.limits = limits

    def none(self, row: int) -> Refusal | None:
        """Why a node could not hold any candidate even if it were empty; None where it could."""
        gpus = self._gpus(row)
        if not gpus:
            return _NO_GPU
        least = self.asks.least_of_model
        usable = [gpu for gpu in gpus if gpu.healthy and gpu.model in least]
        if not usable:
            return self._no_usable_gpu(gpus)
        limits = self.limits
        if any(
            percent <= limits.percent_max
            and memory_mib <= gpu.memory_mib - limits.server_context_mib
            for gpu in usable
            for percent, memory_mib in [least[gpu.model]]
        ):
            return None
        largest = max(usable, key=lambda gpu: gpu.memory_mib)
        percent, memory_mib = least[largest.model]
        return Refusal(
            f"too large for any GPU here: {percent} % and {memory_mib:,} MiB asked at least, one "
            f"can give at most {limits.percent_max} % and "
            f"{largest.memory_mib - limits.server_context_mib:,} MiB",
            resolvable=False,
        )

    def without_a_model(self, row: int, asks: list[int]) -> Refusal:
        """Why a node without a usable GPU of the models of ``asks`` is refused."""
        hopeless = self.none(row)
        if hopeless is not None:
            return hopeless
        here = sorted({gpu.model for gpu in self._gpus(row) if gpu.healthy})
        wanted = sorted({self.asks.candidates[ask].gpu_model for ask in asks})
        return Refusal(
            f"its GPUs are {', '.join(here)}; a better candidate, on {', '.join(wanted)}, is held "
            "by other nodes",
            resolvable=True,
        )

    def _gpus(self, row: int) -> list[Gpu]:
        first, count = int(self.fleet.node_first_gpu[row]), int(self.fleet.node_gpus[row])
        return [gpu for gpu in self.fleet.gpus[first : first + count] if gpu is not None]

    def _no_usable_gpu(self, gpus: list[Gpu]) -> Refusal:
        models = self.asks.least_of_model.keys()
        here = sorted({gpu.model for gpu in gpus})
        if models.isdisjoint(here):
            return Refusal(
                f"its GPUs are {', '.join(here)}; the plan holds on {', '.join(sorted(models))}",
                resolvable=False,
            )
        ill = ", ".join(str(gpu.index) for gpu in gpus if not gpu.healthy)
        return Refusal(f"its GPUs of a fitting model are unhealthy (GPU {ill})", resolvable=False)
