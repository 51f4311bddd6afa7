"""Environment ``synergy``: rounds of 300 s, speeds by the CPUs and the memory of a job.

The form of the public simulator of Synergy (OSDI 2022): a job that gets its full demand of CPUs and
memory runs faster by its profile's speed-up, any other runs at the speed of the proportional share.
A round completes whole iterations, and a job ends with a round. Nodes have 8 GPUs, 24 CPUs and
500 GiB. The profiles' demand of storage bandwidth equals that of memory and needs no third share.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import Field

from studies.training.cluster import TrainingCluster, TrainingNode
from studies.training.environment import JobEnvironment, WorkloadSource
from studies.training.environments.synergy_files import DemandProfile, generated_rows, read_workload
from studies.training.errors import JobsError
from studies.training.job import DemandingJob, TrainingJob
from studies.training.policy import RunParameters

NODES, GPUS = 4, 8
CPUS_PER_GPU = 3
MEMORY_GIB_PER_GPU = 62.5
_BEGIN_S = 1.0  # of the first round, as in the public simulator


class SynergyEnvironmentParameters(RunParameters):
    """Length of a round."""

    round_s: float = Field(default=300.0, gt=0, description="seconds between decisions")


@dataclass(slots=True, kw_only=True, eq=False)
class SynergyJob(DemandingJob):
    """A job of a known number of iterations.

    Attributes:
        iterations: total number of iterations.
        completed: number of completed iterations.
    """

    profile: DemandProfile
    iterations: int
    completed: int = 0

    @property
    def cpus_per_gpu(self) -> int:
        """Demand of the profile."""
        return self.profile.cpus

    @property
    def memory_gib_per_gpu(self) -> float:
        """Demand of the profile."""
        return self.profile.memory_gib

    @property
    def demand_speed_ratio(self) -> float:
        """Speed-up of the profile."""
        return self.profile.speed_ratio

    @property
    def ideal_s(self) -> float:
        """Time of all iterations without a speed-up."""
        return self.iterations * self.profile.iteration_s

    @property
    def remaining_s(self) -> float:
        """Time of the remaining iterations without a speed-up."""
        return (self.iterations - self.completed) * self.profile.iteration_s

    def iteration_s(self) -> float:
        """Return the time of an iteration under the current placement."""
        gpus = len(self.placement.gpus)
        profile = self.profile
        full = (
            self.placement.cpus >= gpus * profile.cpus
            and self.placement.memory_gib >= gpus * profile.memory_gib
        )
        return profile.iteration_s / (profile.speed_ratio if full else 1.0)


class SynergyEnvironment(JobEnvironment[SynergyJob]):
    """Jobs of a Synergy trace; every decision may place all jobs again at no cost."""

    job_type: ClassVar[type[TrainingJob]] = SynergyJob
    parameters_type: ClassVar[type[RunParameters]] = SynergyEnvironmentParameters

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a trace and the profiles of its models; see `JobEnvironment.load`."""
        rows = (
            generated_rows(source.seed)
            if source.workload is None
            else read_workload(source.workload, source.data)
        )
        jobs = [SynergyJob(**row._asdict()) for row in rows]
        size = source.gpus or GPUS
        node = TrainingNode(size, "", CPUS_PER_GPU * size, MEMORY_GIB_PER_GPU * size)
        return cls(parameters, jobs, TrainingCluster((node,) * (source.nodes or NODES)))

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the end of the round."""
        round_s: float = self.parameters.round_s
        return now_s + round_s if now_s >= _BEGIN_S else _BEGIN_S

    def advance(self, now_s: float, next_s: float) -> None:
        """Let placed jobs complete the whole iterations of a round."""
        seconds = next_s - now_s
        for job in list(self._running.values()):
            job.completed += self._iterations(job, seconds)
            job.executed_s += seconds
            job.service_gpu_s += seconds * len(job.placement.gpus)
            if job.completed >= job.iterations:
                job.end_s = next_s
                del self._running[job.name]

    def _iterations(self, job: SynergyJob, seconds: float) -> int:
        """Return the whole iterations of a round."""
        iterations = int(seconds / job.iteration_s())
        if not iterations:
            raise JobsError(
                f"job {job.name}: an iteration takes {job.iteration_s():g} s and a round "
                f"{seconds:g} s, so that none completes; set round_s to more than an iteration"
            )
        return iterations
