"""Why a node was refused, in numbers, and whether evicting pods could change it."""

from dataclasses import dataclass

from scheduler.placement.fleet import Fleet
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
    told = _Telling(fleet, placing.asks, ask, limits)
    return {
        name: told.of(int(row))
        for name, row, gpu in zip(names, placing.node_rows, placing.gpu_rows, strict=True)
        if gpu < 0
    }


class _Telling:
    def __init__(self, fleet: Fleet, asks: Asks, ask: int, limits: Limits) -> None:
        self.fleet = fleet
        self.limits = limits
        self.models = {candidate.gpu_model for candidate in asks.candidates}
        self.model_numbers = {fleet.model_number(model) for model in self.models} - {-1}
        self.percent = int(asks.percents[ask])
        self.memory_mib = int(asks.memories_mib[ask])
        self.cpu_milli = int(asks.cpus_milli[ask])
        self.least_memory_mib = int(asks.memories_mib.min())
        self.least_percent = int(asks.percents.min())

    def of(self, row: int) -> Refusal:
        fleet = self.fleet
        if row < 0:
            return Refusal("the node is not known to the extender (yet)", resolvable=False)
        first, count = int(fleet.node_first_gpu[row]), int(fleet.node_gpus[row])
        if count == 0:
            return Refusal(
                "the node has no GPU to share (no inventory annotation)", resolvable=False
            )
        numbers = fleet.gpu_model[first : first + count].tolist()
        usable = [first + i for i, number in enumerate(numbers) if number in self.model_numbers]
        if not usable:
            return self._no_usable_gpu(numbers, first)
        largest = max(fleet.gpus[gpu].memory_mib for gpu in usable)  # type: ignore[union-attr]
        largest -= self.limits.server_context_mib
        if self.least_memory_mib > largest or self.least_percent > self.limits.percent_max:
            return Refusal(
                f"too large for any GPU here: {self.least_percent} % and "
                f"{self.least_memory_mib:,} MiB asked at least, one can give at most "
                f"{self.limits.percent_max} % and {largest:,} MiB",
                resolvable=False,
            )
        if (free := int(fleet.node_free_cpu_milli[row])) < self.cpu_milli:
            return Refusal(
                f"{max(free, 0) / 1000:g} vCPU free, {self.cpu_milli / 1000:g} asked",
                resolvable=True,
            )
        return Refusal(self._fullness(usable), resolvable=True)

    def _no_usable_gpu(self, numbers: list[int], first: int) -> Refusal:
        gpus = [self.fleet.gpus[first + i] for i in range(len(numbers))]
        here = sorted({gpu.model for gpu in gpus if gpu is not None})
        if self.models.isdisjoint(here):
            return Refusal(
                f"its GPUs are {', '.join(here)}; "
                f"the plan holds on {', '.join(sorted(self.models))}",
                resolvable=False,
            )
        ill = ", ".join(str(gpu.index) for gpu in gpus if gpu is not None and not gpu.healthy)
        return Refusal(f"its GPUs of a fitting model are unhealthy (GPU {ill})", resolvable=False)

    def _fullness(self, usable: list[int]) -> str:
        """The GPU that comes nearest, and what it has against what is asked."""
        fleet = self.fleet
        percents, memories = fleet.gpu_free_percent, fleet.gpu_free_memory_mib
        nearest = max(
            usable,
            key=lambda gpu: (
                min(int(percents[gpu]) - self.percent, 0),
                min(int(memories[gpu]) - self.memory_mib, 0),
                int(fleet.gpu_free_clients[gpu]),
            ),
        )
        gpu = fleet.gpus[nearest]
        index = "?" if gpu is None else gpu.index
        text = (
            f"GPU {index}: {max(int(percents[nearest]), 0)} % free, {self.percent} % asked; "
            f"{max(int(memories[nearest]), 0):,} MiB free, {self.memory_mib:,} asked"
        )
        if fleet.gpu_free_clients[nearest] < 1:
            text += f"; all {self.limits.clients_max} MPS clients taken"
        return text
