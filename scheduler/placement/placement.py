"""From candidates to nodes: the first candidate that any node holds decides (ESG_Dispatch)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.placement import kernels
from scheduler.placement.fleet import Fleet, Float64Array, Int32Array, Int64Array
from scheduler.placement.fragmentation import (
    FragmentationDelta,
    RequestClass,
    RequestMix,
    least_growths,
)
from scheduler.placement.options import FitPolicy


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """What the pod requests whatever its configuration: Kubernetes counts requests, so do we."""

    container_milli: int = 0  # of the container that gets the GPU
    beside_milli: int = 0  # of the pod's other containers

    def with_configuration(self, cpu: int) -> int:
        """What the pod takes of a node with ``cpu`` vCPUs planned, in thousandths."""
        return max(self.container_milli, cpu * 1000) + self.beside_milli


class CandidateArrays:
    """The candidates of one plan as the arrays that the kernels read."""

    def __init__(
        self, fleet: Fleet, candidates: Sequence[Candidate], cpu: "CpuRequest | None" = None
    ) -> None:
        self.candidates = tuple(candidates)
        cpu = cpu or CpuRequest()
        count = len(self.candidates)
        self.starts_ms: Float64Array = np.empty(count, np.float64)
        self.models: Int32Array = np.empty(count, np.int32)
        self.percents: Int32Array = np.empty(count, np.int32)
        self.memories_mib: Int64Array = np.empty(count, np.int64)
        self.cpus_milli: Int64Array = np.empty(count, np.int64)
        for i, candidate in enumerate(self.candidates):
            configuration = candidate.configuration
            self.starts_ms[i] = candidate.start_ms
            # A model that no node has must match no GPU, not even the unusable ones (-1).
            model = fleet.model_number(candidate.gpu_model)
            self.models[i] = model if model >= 0 else np.iinfo(np.int32).max
            self.percents[i] = configuration.gpu_percent
            self.memories_mib[i] = configuration.memory_mib
            self.cpus_milli[i] = cpu.with_configuration(configuration.cpu)

    def ask_class(self, index: int) -> RequestClass:
        """What the candidate at that index takes."""
        return RequestClass(
            int(self.cpus_milli[index]), int(self.percents[index]), int(self.memories_mib[index])
        )

    @cached_property
    def least_of_model(self) -> dict[str, tuple[int, int]]:
        """The least share and the least memory (MiB) that any candidate for a GPU model asks."""
        least: dict[str, tuple[int, int]] = {}
        for candidate in self.candidates:
            asked = candidate.configuration
            percent, memory_mib = asked.gpu_percent, asked.memory_mib
            if candidate.gpu_model in least:
                known_percent, known_mib = least[candidate.gpu_model]
                percent, memory_mib = min(percent, known_percent), min(memory_mib, known_mib)
            least[candidate.gpu_model] = percent, memory_mib
        return least

    def least_demanding(self, start_ms: float) -> list[int]:
        """Indices of one candidate a GPU model, the least demanding: what full nodes are told.

        Where a start takes ``start_ms``, a model's candidate is one that holds there; if it has
        none, one that allows the longest start.
        """
        demands = zip(
            np.maximum(start_ms - self.starts_ms, 0.0).tolist(),
            self.percents.tolist(),
            self.memories_mib.tolist(),
            self.cpus_milli.tolist(),
            range(len(self.candidates)),
            strict=True,
        )
        chosen: dict[str, int] = {}
        for *_, i in sorted(demands):
            chosen.setdefault(self.candidates[i].gpu_model, i)
        return list(chosen.values())


@dataclass(frozen=True, slots=True)
class Placement:
    """What the nodes asked about can hold.

    ``node_start_ms`` (n,) is how long a start takes on each of them; ``chosen`` is the index of the
    candidate that decides, None where no node holds any; ``gpu_rows`` (n,) is the GPU row it would
    take on each node, -1 where the node cannot hold it. ``growths`` says how much that makes
    fragmentation grow; None where nobody asked.
    """

    asks: CandidateArrays
    node_rows: Int64Array
    node_start_ms: Float64Array
    chosen: int | None
    gpu_rows: Int64Array
    growths: FragmentationDelta | None = None

    @property
    def candidate(self) -> Candidate | None:
        """The candidate that decides."""
        return None if self.chosen is None else self.asks.candidates[self.chosen]


def place(  # noqa: PLR0913 - a question, and the four things that bear on it
    fleet: Fleet,
    candidates: Sequence[Candidate],
    node_rows: Int64Array,
    *,
    node_start_ms: Float64Array | None = None,
    policy: FitPolicy = "pack",
    cpu: CpuRequest | None = None,
    mix_of: Callable[[str], RequestMix] | None = None,
) -> Placement:
    """Try the candidates in order; the first that any of the nodes holds decides.

    A candidate holds on nodes of its GPU model where a start takes no longer than its own
    ``start_ms``; ``node_start_ms`` (n,) says how long, in ms, and None that it takes none anywhere.
    ``mix_of`` gives the mix of asks on GPUs of a model: each node's GPU is then the one where the
    grant makes fragmentation grow least, and not the policy's, where there is a mix.
    """
    asks = CandidateArrays(fleet, candidates, cpu)
    if node_start_ms is None:
        node_start_ms = np.zeros(node_rows.shape[0])
    gpu_rows = np.full(node_rows.shape[0], -1, np.int64)
    chosen = kernels.first_held(
        node_rows, node_start_ms,
        asks.starts_ms, asks.models, asks.percents, asks.memories_mib, asks.cpus_milli,
        kernels.SPREAD if policy == "spread" else kernels.PACK,
        fleet.node_first_gpu, fleet.node_gpus, fleet.node_free_cpu_milli,
        fleet.gpu_model, fleet.gpu_free_percent, fleet.gpu_free_memory_mib, fleet.gpu_free_clients,
        gpu_rows,
    )  # fmt: skip
    if chosen < 0:
        return Placement(asks, node_rows, node_start_ms, None, gpu_rows)
    growths = None
    if mix_of is not None:
        mix = mix_of(asks.candidates[chosen].gpu_model)
        if len(mix.counts):
            model, ask = int(asks.models[chosen]), asks.ask_class(int(chosen))
            growths = least_growths(fleet, mix, node_rows, gpu_rows, model=model, ask=ask)
    return Placement(asks, node_rows, node_start_ms, int(chosen), gpu_rows, growths)
