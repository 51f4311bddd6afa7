"""The candidates of a plan, as placement reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.placement.arrays import CandidateArrays
from scheduler.placement.fleet import Fleet
from scheduler.placement.fragmentation import RequestClass

_NO_MODEL = np.iinfo(np.int32).max  # matches no GPU, not even an unusable one (-1)


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """vCPU requests that the pod has whatever its configuration: Kubernetes counts requests."""

    container_milli: int = 0  # of the container that gets the GPU
    beside_milli: int = 0  # of the pod's other containers
    in_slice: bool = False  # true: a slice has the vCPUs of the configuration

    def with_configuration(self, cpu: int) -> int:
        """Return the pod's vCPUs on a node with ``cpu`` planned, in thousandths."""
        planned_milli = 0 if self.in_slice else cpu * 1000
        return max(self.container_milli, planned_milli) + self.beside_milli


class CandidateTable:
    """Candidates, best first, and the arrays of them that the kernels read."""

    def __init__(
        self, fleet: Fleet, candidates: Sequence[Candidate], cpu: CpuRequest | None = None
    ) -> None:
        self.candidates = tuple(candidates)
        cpu = cpu or CpuRequest()
        count = len(self.candidates)
        self.arrays = CandidateArrays(
            start_ms=np.empty(count, np.float64),
            model=np.empty(count, np.int32),
            gpu_percent=np.empty(count, np.int32),
            memory_mib=np.empty(count, np.int64),
            cpu_milli=np.empty(count, np.int64),
        )
        for i, candidate in enumerate(self.candidates):
            configuration = candidate.configuration
            model = fleet.model_number(candidate.gpu_model)
            self.arrays.start_ms[i] = candidate.start_ms
            self.arrays.model[i] = model if model >= 0 else _NO_MODEL
            self.arrays.gpu_percent[i] = configuration.gpu_percent
            self.arrays.memory_mib[i] = configuration.memory_mib
            self.arrays.cpu_milli[i] = cpu.with_configuration(configuration.cpu)
        self._classes: dict[int, RequestClass] = {}  # by index of the candidate

    def request_class(self, index: int) -> RequestClass:
        """Return the class of a pod with the candidate at that index."""
        request = self._classes.get(index)
        if request is None:
            arrays = self.arrays
            request = self._classes[index] = RequestClass(
                int(arrays.cpu_milli[index]),
                int(arrays.gpu_percent[index]),
                int(arrays.memory_mib[index]),
            )
        return request

    @cached_property
    def minimum_of_model(self) -> dict[str, tuple[int, int]]:
        """Smallest share and smallest memory (MiB) over the candidates for each GPU model."""
        minima: dict[str, tuple[int, int]] = {}
        for candidate in self.candidates:
            configuration = candidate.configuration
            percent, memory_mib = configuration.gpu_percent, configuration.memory_mib
            if candidate.gpu_model in minima:
                known_percent, known_mib = minima[candidate.gpu_model]
                percent, memory_mib = min(percent, known_percent), min(memory_mib, known_mib)
            minima[candidate.gpu_model] = percent, memory_mib
        return minima

    def least_demanding(self, start_ms: float) -> list[int]:
        """Return the index of the least demanding candidate of each GPU model.

        Where a start takes ``start_ms``, it is one that allows that start; if the model has none,
        one that allows the longest start. Refusals of full nodes report it.
        """
        arrays = self.arrays
        demands = zip(
            np.maximum(start_ms - arrays.start_ms, 0.0).tolist(),
            arrays.gpu_percent.tolist(),
            arrays.memory_mib.tolist(),
            arrays.cpu_milli.tolist(),
            range(len(self.candidates)),
            strict=True,
        )
        indices: dict[str, int] = {}
        for *_, i in sorted(demands):
            indices.setdefault(self.candidates[i].gpu_model, i)
        return list(indices.values())
