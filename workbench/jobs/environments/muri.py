"""Environment ``muri``: events, each of which costs every running job its start-up time.

The form of the public simulator of Muri (SIGCOMM 2022). Iterations take 1.5 % more than in the
trace. At every event all running jobs are started again and lose their start-up time from what they
did since the last event, but not more. Ends are predicted without that. The cluster is 8 nodes of 8
GPUs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.environments.constant_speed import EventEnvironment, PacedJob
from workbench.jobs.environments.muri_files import generated_rows, read_workload
from workbench.jobs.job import TrainingJob

NODES, GPUS = 8, 8
_OVERHEAD_FACTOR = 1.015


@dataclass(slots=True, kw_only=True, eq=False)
class MuriJob(PacedJob):
    """A job of a known number of iterations.

    Attributes:
        iterations: in all.
        iteration_s: time of one, alone.
        resources_s: of that, on storage and CPU, on the GPU, and on the network.
        startup_s: what an event costs.
        guaranteed: class of the job.
        completed: iterations.
    """

    iterations: int
    iteration_s: float
    resources_s: tuple[float, float, float]
    startup_s: float
    guaranteed: bool
    completed: float = 0.0

    @property
    def remaining_s(self) -> float:
        """Time of the remaining iterations, without events."""
        return (self.iterations - self.completed) * self.iteration_s

    def run(self, seconds: float) -> None:
        """Complete iterations after the start-up."""
        self.completed += max(seconds - self.startup_s, 0.0) / self.iteration_s


class MuriEnvironment(EventEnvironment[MuriJob]):
    """Jobs of a Muri trace."""

    job_type: ClassVar[type[TrainingJob]] = MuriJob
    workload_help: ClassVar[str] = "CSV: job_id, num_gpu, submit_time (ms), iterations, …"

    @classmethod
    def load(  # noqa: PLR0913 - the setup of a run
        cls,
        parameters: Any,  # noqa: ARG003
        *,
        workload: Path | None,
        data: Path | None,  # noqa: ARG003
        nodes: int | None,
        gpus: int | None,
        seed: int,
    ) -> Self:
        """Read a trace; see `JobEnvironment.load`."""
        rows = generated_rows(seed) if workload is None else read_workload(workload)
        jobs = [
            MuriJob(
                name=row.name,
                model=row.model,
                submit_s=row.submit_s,
                gpus=row.gpus,
                iterations=row.iterations,
                iteration_s=row.iteration_s * _OVERHEAD_FACTOR,
                resources_s=row.resources_s,
                startup_s=row.startup_s,
                guaranteed=row.guaranteed,
            )
            for row in rows
        ]
        return cls(jobs, TrainingCluster.uniform(nodes or NODES, gpus or GPUS))
