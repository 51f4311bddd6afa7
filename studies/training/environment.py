"""Interface of environments: the jobs of a workload, the clock, and progress under placements."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Generic, Self

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement, TrainingJob, TrainingJobT
from studies.training.policy import RunParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSource:
    """Source of a run's jobs, and the size of its cluster.

    Attributes:
        workload: trace file; None: a generated trace.
        data: folder with the tables of traces; None: generated tables.
        nodes: number of nodes of the cluster; None: the environment's default.
        gpus: number of GPUs per node; None: the environment's default.
        seed: seed of generated traces.
    """

    workload: Path | None = None
    data: Path | None = None
    nodes: int | None = None
    gpus: int | None = None
    seed: int = 0

    def uniform_cluster(self, nodes: int, gpus: int) -> TrainingCluster:
        """Create a cluster of equal nodes, by default so many with so many GPUs."""
        return TrainingCluster.uniform(self.nodes or nodes, self.gpus or gpus)


class JobEnvironment(ABC, Generic[TrainingJobT]):
    """Jobs and the physics of one run.

    Attributes:
        job_type: class of the jobs; policies find their capabilities there.
        jobs_per_gpu: number of jobs that may share a GPU.
        parameters: parameters of the run, of that class.
        jobs: jobs in the order of the workload.
    """

    job_type: ClassVar[type[TrainingJob]]
    parameters_type: ClassVar[type[RunParameters]] = RunParameters
    jobs_per_gpu: ClassVar[int] = 1

    def __init__(
        self, parameters: Any, jobs: Sequence[TrainingJobT], cluster: TrainingCluster
    ) -> None:
        self.parameters = parameters
        self.jobs = jobs
        self.cluster = cluster
        self._running: dict[str, TrainingJobT] = {}  # jobs that hold GPUs
        self._arrivals_s = sorted({job.submit_s for job in jobs}, reverse=True)  # to come

    @classmethod
    @abstractmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a workload and what its jobs need; ``parameters`` are of `parameters_type`.

        Raises:
            DocumentError: a file is missing, or a row is wrong.
        """

    def begin(self, *, adapts_batch: bool) -> None:
        """Prepare a run of a policy that lets jobs choose their batch, or not."""

    @abstractmethod
    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the time of the next decision: the next round, or the next event.

        Args:
            now_s: current time of the clock.
            wake_s: time at which the policy requests another decision; inf: it requests none.
        """

    @abstractmethod
    def advance(self, now_s: float, next_s: float) -> None:
        """Let jobs run until then: their service, their progress, and `end_s` of those that end."""

    def place(self, job: TrainingJobT, placement: JobPlacement, now_s: float) -> None:
        """Start a job, move it at no cost, or stop it."""
        if placement.gpus:
            job.restarts += job.start_s is not None and not job.running
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)

    def _next_arrival_s(self) -> float:
        """Return the time of the next arrival; inf: none."""
        return self._arrivals_s[-1] if self._arrivals_s else inf

    def _drop_arrivals(self, until_s: float) -> None:
        """Discard arrivals that have happened."""
        while self._next_arrival_s() <= until_s:
            self._arrivals_s.pop()
