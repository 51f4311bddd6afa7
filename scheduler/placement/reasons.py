"""Why a node was refused, in numbers, and whether evicting pods could change it."""

from dataclasses import dataclass

import numpy as np

from scheduler.model.node import Gpu
from scheduler.placement import kernels
from scheduler.placement.fleet import Fleet, Int64Array
from scheduler.placement.placing import Asks, Placing


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not hold the pod; ``resolvable``: it might, if pods there were evicted."""

    reason: str
    resolvable: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What one GPU can promise at most; the memory is what MPS's server leaves of it."""

    percent_max: int = 100
    server_context_mib: int = 1024
    clients_max: int = 48


def refusals(
    fleet: Fleet, placing: Placing, names: list[str], limits: Limits
) -> dict[str, Refusal]:
    """A refusal for each of the nodes that does not hold the deciding candidate.

    Where no candidate is held anywhere, the numbers are those of the least demanding one.
    """
    ask = placing.asks.smallest if placing.chosen is None else placing.chosen
    telling = _Telling(fleet, placing.asks, ask, limits)
    refused = np.flatnonzero(placing.gpu_rows < 0)
    node_rows = placing.node_rows[refused]
    told = {names[i]: _NOT_KNOWN for i in refused[node_rows < 0].tolist()}
    refused, node_rows = refused[node_rows >= 0], node_rows[node_rows >= 0]
    return told | telling.of([names[i] for i in refused.tolist()], node_rows)


_NOT_KNOWN = Refusal("the node is not known to the extender (yet)", resolvable=False)
_NO_GPU = Refusal("the node has no GPU to share (no inventory annotation)", resolvable=False)


class _Telling:
    def __init__(self, fleet: Fleet, asks: Asks, ask: int, limits: Limits) -> None:
        self.fleet = fleet
        self.limits = limits
        self.models = {candidate.gpu_model for candidate in asks.candidates}
        self.percent = int(asks.percents[ask])
        self.memory_mib = int(asks.memories_mib[ask])
        self.cpu_milli = int(asks.cpus_milli[ask])
        self.least_memory_mib = int(asks.memories_mib.min())
        self.least_percent = int(asks.percents.min())

    def of(self, names: list[str], node_rows: Int64Array) -> dict[str, Refusal]:
        """Refusals by name for nodes that are known."""
        # Some hundreds of nodes a call, mostly for want of room: that case reads the arrays in one
        # kernel call, and Python objects for the index of a GPU alone.
        fleet = self.fleet
        nearest, most_free_mib = np.empty_like(node_rows), np.empty_like(node_rows)
        numbers = sorted({fleet.model_number(model) for model in self.models} - {-1})
        kernels.nearest_gpus(
            node_rows, np.array(numbers, np.int32), self.percent, self.memory_mib,
            fleet.node_first_gpu, fleet.node_gpus,
            fleet.gpu_model, fleet.gpu_free_percent, fleet.gpu_free_memory_mib,
            fleet.gpu_free_clients, nearest, most_free_mib,
        )  # fmt: skip
        impossible = self.least_percent > self.limits.percent_max
        free_cpu_milli = fleet.node_free_cpu_milli[node_rows]
        free_percent = fleet.gpu_free_percent[nearest]  # of any GPU where there is no nearest
        free_mib = fleet.gpu_free_memory_mib[nearest]
        free_clients = fleet.gpu_free_clients[nearest]
        told = {}
        for name, row, gpu, most_mib, cpu_milli, percent, mib, clients in zip(
            names, node_rows.tolist(), nearest.tolist(), most_free_mib.tolist(),
            free_cpu_milli.tolist(), free_percent.tolist(), free_mib.tolist(),
            free_clients.tolist(), strict=True,
        ):  # fmt: skip
            # What is free is part of what there is: only where it is too little may that be too.
            if gpu < 0 or impossible or most_mib < self.least_memory_mib:
                hopeless = self._hopeless(row)
                if hopeless is not None:
                    told[name] = hopeless
                    continue
            if cpu_milli < self.cpu_milli:
                text = f"{max(cpu_milli, 0) / 1000:g} vCPU free, {self.cpu_milli / 1000:g} asked"
            else:
                text = self._fullness(gpu, percent, mib, clients)
            told[name] = Refusal(text, resolvable=True)
        return told

    def _hopeless(self, row: int) -> Refusal | None:
        """Why a node could not hold it even if it were empty; None where it could."""
        fleet = self.fleet
        first, count = int(fleet.node_first_gpu[row]), int(fleet.node_gpus[row])
        if count == 0:
            return _NO_GPU
        gpus = [gpu for gpu in fleet.gpus[first : first + count] if gpu is not None]
        usable = [gpu.memory_mib for gpu in gpus if gpu.healthy and gpu.model in self.models]
        if not usable:
            return self._no_usable_gpu(gpus)
        largest_mib = max(usable) - self.limits.server_context_mib
        if self.least_memory_mib > largest_mib or self.least_percent > self.limits.percent_max:
            return Refusal(
                f"too large for any GPU here: {self.least_percent} % and "
                f"{self.least_memory_mib:,} MiB asked at least, one can give at most "
                f"{self.limits.percent_max} % and {largest_mib:,} MiB",
                resolvable=False,
            )
        return None

    def _no_usable_gpu(self, gpus: list[Gpu]) -> Refusal:
        here = sorted({gpu.model for gpu in gpus})
        if self.models.isdisjoint(here):
            return Refusal(
                f"its GPUs are {', '.join(here)}; "
                f"the plan holds on {', '.join(sorted(self.models))}",
                resolvable=False,
            )
        ill = ", ".join(str(gpu.index) for gpu in gpus if not gpu.healthy)
        return Refusal(f"its GPUs of a fitting model are unhealthy (GPU {ill})", resolvable=False)

    def _fullness(self, row: int, percent: int, memory_mib: int, clients: int) -> str:
        """The GPU that comes nearest, and what it has against what is asked."""
        gpu = self.fleet.gpus[row]
        text = (
            f"GPU {'?' if gpu is None else gpu.index}: "
            f"{max(percent, 0)} % free, {self.percent} % asked; "
            f"{max(memory_mib, 0):,} MiB free, {self.memory_mib:,} asked"
        )
        if clients < 1:
            text += f"; all {self.limits.clients_max} MPS clients taken"
        return text
