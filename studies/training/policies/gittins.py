"""Tiresias with the Gittins index: past services say which job will end soon.

A job that has received a service is ranked by the probability that it ends within one more quantum,
over the expected service in that quantum, both from the distribution of past jobs (NSDI 2019).
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, exp, inf
from pathlib import Path
from statistics import NormalDist

from pydantic import Field

from studies.training.job import TrainingJob
from studies.training.ordered import OrderedPolicy, OrderParameters
from studies.training.policy import JobsState, Placements
from workbench.files.csv_table import file_error, table_rows

_GENERATED = NormalDist(7.0, 1.5)  # logarithms of GPU-seconds
_GENERATED_COUNT = 1000


class GittinsParameters(OrderParameters):
    """Distribution of past services, and quantum."""

    distribution: Path | None = Field(
        default=None,
        description="CSV with a column duration, GPU-seconds of past jobs; absent: generated",
    )
    quantum_gpu_s: float = Field(default=3250.0, gt=0, description="service between ranks")


class Gittins(OrderedPolicy[TrainingJob]):
    """Largest index first, preemptive; equal ranks in order of arrival."""

    parameters_type = GittinsParameters

    def __init__(self, parameters: GittinsParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        if parameters.distribution is None:
            self._services_gpu_s = _generated()
        else:
            self._services_gpu_s = _read(parameters.distribution)
        self._sums_gpu_s = list(accumulate(self._services_gpu_s, initial=0.0))
        self._running: list[TrainingJob] = []

    def order(self, jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
        """Return the jobs by their index."""
        return sorted(jobs, key=lambda job: -self.index_score(job.service_gpu_s))

    def decide(self, state: JobsState[TrainingJob]) -> Placements:
        """Place the jobs that fit, and note which run."""
        decided = super().decide(state)
        self._running = [job for job in state.jobs if job.name in decided]
        return decided

    def wake_s(self, now_s: float) -> float:
        """Return when a running job's service reaches the next multiple of the quantum."""
        quantum_gpu_s = self.parameters.quantum_gpu_s
        return min(
            (
                now_s + max(ceil((quantum_gpu_s - job.service_gpu_s % quantum_gpu_s) / job.gpus), 1)
                for job in self._running
            ),
            default=inf,
        )

    def index_score(self, attained_gpu_s: float) -> float:
        """Return the probability of an end within a quantum over the expected service in it."""
        quantum_gpu_s: float = self.parameters.quantum_gpu_s
        end_gpu_s = attained_gpu_s + quantum_gpu_s
        first = bisect_right(self._services_gpu_s, attained_gpu_s)
        last = bisect_right(self._services_gpu_s, end_gpu_s)
        longer = len(self._services_gpu_s) - first
        if not longer:
            return 0.0
        ending_gpu_s = self._sums_gpu_s[last] - self._sums_gpu_s[first]
        beyond = len(self._services_gpu_s) - last
        expected_gpu_s = (ending_gpu_s + beyond * end_gpu_s) / longer - attained_gpu_s
        return (last - first) / longer / expected_gpu_s


def _generated() -> list[float]:
    """Return quantiles of a heavy-tailed distribution."""
    count = _GENERATED_COUNT
    return [exp(_GENERATED.inv_cdf((i + 0.5) / count)) for i in range(count)]


def _read(file: Path) -> list[float]:
    services_gpu_s = sorted(row.number("duration") for row in table_rows(file, ("duration",)))
    if not services_gpu_s:
        raise file_error(file, "has no service below the column's name")
    return services_gpu_s
