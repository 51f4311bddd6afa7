"""Environment ``muri``: events, each of which costs every running job its start-up time.

The form of the public simulator of Muri (SIGCOMM 2022). Iterations take 1.5 % more than in the
trace. At every event all running jobs are started again and lose their start-up time from what they
did since the last event, but not more. Ends are predicted without that. Next to a guaranteed job an
opportunistic one has what is left of storage, GPU and network. The cluster is 8 nodes of 8 GPUs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import Field

from studies.training.environment import WorkloadSource
from studies.training.environments.event_clock import EventEnvironment, SteadyJob
from studies.training.environments.muri_files import generated_rows, read_workload
from studies.training.job import ClassedJob, TrainingJob
from studies.training.policy import RunParameters

NODES, GPUS = 8, 8
_OVERHEAD_FACTOR = 1.015
_FREE_RATIO = 0.001  # of an iteration: part that a guaranteed job leaves at least


class MuriEnvironmentParameters(RunParameters):
    """Part of the trace."""

    job_count: int | None = Field(default=None, ge=1, description="jobs of the file that are read")


@dataclass(slots=True, kw_only=True, eq=False)
class MuriJob(ClassedJob, SteadyJob):
    """A job of a known number of iterations.

    Attributes:
        iterations: total number of iterations.
        iteration_s: time of one iteration alone.
        resources_s: parts of that time on storage and CPU, on the GPU, and on the network.
        startup_s: time that each event costs.
        guaranteed: true if nothing slows the job down.
        slowed_ratio: factor of the slow-down by neighbours.
        completed_count: number of completed iterations.
    """

    iterations: int
    iteration_s: float
    resources_s: tuple[float, float, float]
    startup_s: float
    guaranteed: bool = field()
    completed_count: float = 0.0
    slowed_ratio: float = 1.0

    @property
    def remaining_s(self) -> float:
        """Time of the remaining iterations, without events."""
        return (self.iterations - self.completed_count) * self.iteration_s * self.slowed_ratio

    def run(self, seconds: float) -> None:
        """Complete iterations after the start-up."""
        self.completed_count += max(seconds - self.startup_s, 0.0) / (
            self.iteration_s * self.slowed_ratio
        )


class MuriEnvironment(EventEnvironment[MuriJob]):
    """Jobs of a Muri trace."""

    job_type: ClassVar[type[TrainingJob]] = MuriJob
    parameters_type: ClassVar[type[RunParameters]] = MuriEnvironmentParameters
    jobs_per_gpu: ClassVar[int] = 2

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a trace; see `JobEnvironment.load`."""
        rows = (
            generated_rows(source.seed)
            if source.workload is None
            else read_workload(source.workload)
        )
        jobs = [
            MuriJob(**row._replace(iteration_s=row.iteration_s * _OVERHEAD_FACTOR)._asdict())
            for row in rows[: parameters.job_count]
        ]
        return cls(parameters, jobs, source.uniform_cluster(NODES, GPUS))

    def set_paces(self, running: Sequence[MuriJob]) -> None:
        """Slow opportunistic jobs down next to guaranteed ones."""
        guaranteed = {gpu: job for job in running if job.guaranteed for gpu in job.placement.gpus}
        for job in running:
            if not job.guaranteed:
                gpus = job.placement.gpus
                neighbours = {
                    guaranteed[gpu].name: guaranteed[gpu] for gpu in gpus if gpu in guaranteed
                }
                job.slowed_ratio = max(
                    (_slowdown_ratio(job, neighbour) for neighbour in neighbours.values()),
                    default=1.0,
                )


def _slowdown_ratio(job: MuriJob, guaranteed: MuriJob) -> float:
    """Return the slow-down of an opportunistic job that uses what a guaranteed one leaves.

    Its phases on storage, GPU and network follow one another, each only while the guaranteed job,
    whose phases have the same order, is on another resource. The last iteration of a phase may
    leave time for the next one. A last phase that ends during storage costs no iteration.
    """
    storage_s, gpu_s, network_s = job.resources_s
    other_storage_s, other_gpu_s, other_network_s = guaranteed.resources_s
    window_min_s = _FREE_RATIO * guaranteed.iteration_s

    window_s = max(other_gpu_s + other_network_s, window_min_s)
    periods, remainder_s = divmod(storage_s, window_s)
    if remainder_s > 0:
        periods += 1
        gpu_s -= min(gpu_s, other_network_s, window_s - remainder_s)

    gpu_periods, remainder_s = divmod(gpu_s, max(other_storage_s + other_network_s, window_min_s))
    periods += gpu_periods
    if remainder_s > 0:
        periods += 1
        if remainder_s < other_storage_s:
            network_s -= min(network_s, other_storage_s + other_gpu_s - remainder_s)

    network_periods, remainder_s = divmod(
        network_s, max(other_storage_s + other_gpu_s, window_min_s)
    )
    periods += network_periods + (remainder_s > other_storage_s)
    return max(periods * guaranteed.iteration_s / job.iteration_s, 1.0)
