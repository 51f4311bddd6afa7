"""Environment ``gavel``: rounds of 360 s, throughput from a table, alone and in pairs.

The form of the public simulator of Gavel (OSDI 2020) on one GPU model. In a round each placed job
runs whole steps, at most those that fit into 360 s, and the round ends with the last of them. All
jobs may be placed again every round at no cost. The cluster is 4 nodes of 4 GPUs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Self

from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.environment import JobEnvironment, WorkloadSource
from studies.training.environments.gavel_files import generated_rows, read_workload
from studies.training.environments.gavel_throughputs import Throughputs
from studies.training.errors import JobsError
from studies.training.job import ThroughputJob, TrainingJob
from studies.training.policy import RunParameters


class GavelEnvironmentParameters(RunParameters):
    """Length of a round, and the GPU model."""

    round_s: float = Field(default=360.0, gt=0, description="seconds between decisions")
    at_once: bool = Field(default=False, description="all jobs arrive at 0")
    gpu_model: str = Field(default="v100", description="GPU model of the table of throughputs")


@dataclass(slots=True, kw_only=True, eq=False)
class GavelJob(ThroughputJob):
    """A job of a known number of steps.

    Attributes:
        steps: total number of steps.
        weight_ratio: importance in the trace.
        throughputs: steps per second of jobs of this type, alone and in pairs.
        done_count: number of steps that are done.
        current_rps: steps per second under the current placements.
        ran_s: time with GPUs in the last round, as the difference of two times of the clock.
    """

    steps: int
    weight_ratio: float = field()
    throughputs: Throughputs
    done_count: int = 0
    current_rps: float = 0.0
    ran_s: float = 0.0

    @property
    def remaining_steps(self) -> int:
        """Steps until completion."""
        return self.steps - self.done_count

    @property
    def remaining_s(self) -> float:
        """Time of the remaining steps, alone."""
        return self.remaining_steps / self.throughputs.alone_rps

    def throughput_rps(self, neighbour: ThroughputJob | None = None) -> float:
        """Return an entry of the table."""
        if neighbour is None:
            return self.throughputs.alone_rps
        pair = self.throughputs.pairs.get((neighbour.model, neighbour.gpus))
        return pair[0] if pair else 0.0


class GavelEnvironment(JobEnvironment[GavelJob]):
    """Jobs of a Gavel trace."""

    job_type: ClassVar[type[TrainingJob]] = GavelJob
    parameters_type: ClassVar[type[RunParameters]] = GavelEnvironmentParameters
    jobs_per_gpu: ClassVar[int] = 2
    size: ClassVar[tuple[int, int]] = (4, 4)  # nodes, and GPUs of each

    def __init__(
        self,
        parameters: GavelEnvironmentParameters,
        jobs: Sequence[GavelJob],
        cluster: TrainingCluster,
    ) -> None:
        super().__init__(parameters, jobs, cluster)
        self._round_s = parameters.round_s

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a trace and the throughputs of its jobs; see `JobEnvironment.load`."""
        jobs = cls.jobs_of(parameters, source)
        if parameters.at_once:
            for job in jobs:
                job.submit_s = 0.0
        return cls(parameters, jobs, source.uniform_cluster(*cls.size))

    @classmethod
    def jobs_of(cls, parameters: Any, source: WorkloadSource) -> Sequence[GavelJob]:
        """Read or generate the jobs."""
        if source.workload is None:
            rows = generated_rows(source.seed)
        else:
            rows = read_workload(source.workload, source.data, parameters.gpu_model)
        return [GavelJob(**row.job._asdict(), throughputs=row.throughputs) for row in rows]

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the end of the round, or of the time until the next arrival.

        An idle cluster waits for the next arrival even if the policy requests a decision before it.
        """
        if self._running:
            self._set_throughputs()
            return now_s + max(self._runs_s(job) for job in self._running.values())
        if self._arrivals_s:
            return self._next_arrival_s()
        return min(wake_s, now_s + self._round_s)

    def advance(self, now_s: float, next_s: float) -> None:
        """Let placed jobs run the steps of a round."""
        self._drop_arrivals(next_s)
        for job in self.jobs:
            job.ran_s = 0.0
        for job in list(self._running.values()):
            end_s = now_s + self._runs_s(job)
            job.ran_s = end_s - now_s
            job.done_count += self._done_steps(job, job.ran_s)
            job.executed_s += job.ran_s
            job.service_gpu_s += job.ran_s * len(job.placement.gpus)
            if job.remaining_steps <= 0:
                job.end_s = end_s
                del self._running[job.name]

    def _done_steps(self, job: GavelJob, runs_s: float) -> int:
        """Return the steps of the round that has ended."""
        return self._steps_of_round(job)

    def _steps_of_round(self, job: GavelJob) -> int:
        return min(job.remaining_steps, int(job.current_rps * self._round_s))

    def _runs_s(self, job: GavelJob) -> float:
        return self._steps_of_round(job) / job.current_rps if job.current_rps else self._round_s

    def _set_throughputs(self) -> None:
        """Set steps per second; of several neighbours, the slowest pair decides.

        Raises:
            JobsError: a step is longer than a round, so that none would ever be done.
        """
        holders: dict[int, list[GavelJob]] = defaultdict(list)
        for job in self._running.values():
            job.current_rps = inf
            for gpu in job.placement.gpus:
                holders[gpu].append(job)
        for sharing in holders.values():
            for job in sharing:
                neighbour = next((near for near in sharing if near is not job), None)
                job.current_rps = min(job.current_rps, job.throughput_rps(neighbour))
        for job in self._running.values():
            if 0.0 < job.current_rps * self._round_s < 1.0:
                raise JobsError(
                    f"job {job.name}: a step takes {1 / job.current_rps:g} s and a round "
                    f"{self._round_s:g} s, so that none completes; set round_s to more than a step"
                )
