"""Size of the nodes with each GPU model: it decides which configurations some node can hold.

It is what a node has when no function runs on it. A full node is as large as an empty one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from scheduler.model.documents import FunctionProfile
from scheduler.model.message_text import listed

PERCENT_MAX = 100  # of one GPU
_SHOWN_MAX = 5  # configurations in one message
_UNLIMITED = 2**62


class NodeSize(NamedTuple):
    """vCPUs of an empty node, in thousandths, and memory of one of its GPUs, MiB."""

    cpu_milli: int
    memory_mib: int

    def __str__(self) -> str:
        return f"{max(self.cpu_milli, 0) / 1000:g} vCPU and {max(self.memory_mib, 0):,} MiB"


class ResourceDemand(Protocol):
    """Resources that a configuration takes."""

    @property
    def cpu(self) -> int: ...
    @property
    def gpu_percent(self) -> int: ...
    @property
    def memory_mib(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FleetCapacity:
    """The largest nodes with each GPU model; nodes that are smaller in everything are left out.

    Two fleets are equal if their largest nodes are.

    Attributes:
        sizes: nodes by GPU model, in the order of the names; of each model by falling vCPUs.
        percent_max: largest share of one GPU that a pod can get, percent.
        other_cpu_milli: thousandths of a vCPU that other containers of the pod take.
    """

    sizes: tuple[tuple[str, tuple[NodeSize, ...]], ...]
    percent_max: int = PERCENT_MAX
    other_cpu_milli: int = 0

    @classmethod
    def of(cls, sizes: Iterable[tuple[str, NodeSize]], percent_max: int = PERCENT_MAX) -> Self:
        """Create the capacity of nodes with these GPUs: model and size of each, in any order."""
        largest: dict[str, list[NodeSize]] = {}
        for model, size in sorted(set(sizes), key=lambda entry: entry[1], reverse=True):
            of_model = largest.setdefault(model, [])
            if not of_model or size.memory_mib > of_model[-1].memory_mib:
                of_model.append(size)
        return cls(tuple((model, tuple(largest[model])) for model in sorted(largest)), percent_max)

    @classmethod
    def of_models(cls, models: Iterable[str]) -> Self:
        """Create the capacity of nodes of any size with these GPU models."""
        return cls.of((model, NodeSize(_UNLIMITED, _UNLIMITED)) for model in models)

    @property
    def models(self) -> tuple[str, ...]:
        """GPU models, by name."""
        return tuple(model for model, _ in self.sizes)

    def of_model(self, model: str) -> tuple[NodeSize, ...]:
        """Return the largest nodes with a GPU model; none if the fleet does not have it."""
        return next((sizes for name, sizes in self.sizes if name == model), ())

    def beside(self, other_cpu_milli: int) -> "FleetCapacity":
        """Return the capacity for a container whose pod has others with these vCPUs."""
        return replace(self, other_cpu_milli=other_cpu_milli)

    def holds(self, model: str, demand: ResourceDemand) -> bool:
        """Return true if some node with that GPU model can hold a configuration."""
        return demand.gpu_percent <= self.percent_max and any(
            demand.cpu * 1000 + self.other_cpu_milli <= size.cpu_milli
            and demand.memory_mib <= size.memory_mib
            for size in self.of_model(model)
        )

    def refusal(
        self,
        model: str,
        demands: Iterable[ResourceDemand],
        subject: str = "its smallest configuration",
    ) -> str:
        """Compare the smallest of some configurations that no node holds with the largest nodes."""
        smallest = min(demands, key=lambda demand: (demand.cpu, demand.memory_mib))
        largest = _alternatives(self.of_model(model))
        limit = "" if self.percent_max >= PERCENT_MAX else f", and grants {self.percent_max} % GPU"
        others = f", {self.other_cpu_milli / 1000:g} vCPU of it for the pod's other containers"
        return (
            f"{subject} takes {_size_text(smallest)} on {model}, and the largest "
            f"node with that GPU has {largest}{others if self.other_cpu_milli else ''}{limit}"
        )

    def excess(self, profile: FunctionProfile) -> list[str]:
        """Describe the configurations that no node can hold, on each GPU model of the fleet."""
        texts = []
        for gpu in profile.spec.gpus:
            sizes = self.of_model(gpu.model)
            unheld = [c for c in gpu.configurations if not self.holds(gpu.model, c)]
            if sizes and unheld:
                shown = listed([f"({_size_text(c)})" for c in unheld], limit=_SHOWN_MAX)
                texts.append(
                    f"no node can hold {len(unheld):,} of {len(gpu.configurations):,} "
                    f"configurations on {gpu.model}: {shown}; the "
                    f"largest node with that GPU has {_alternatives(sizes)}"
                )
        return texts


def _alternatives(sizes: Iterable[NodeSize]) -> str:
    return " or ".join(map(str, sizes))


def _size_text(demand: ResourceDemand) -> str:
    return f"{demand.cpu} vCPU, {demand.gpu_percent} % GPU and {demand.memory_mib:,} MiB"
