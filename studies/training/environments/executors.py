"""Environment ``executors``: jobs are graphs of stages with many tasks, in the way of Spark.

The form of Decima's public simulator (SIGCOMM 2019) with generated jobs. An executor, which is a
GPU of the cluster here, runs one task at a time to its end. An executor that comes from another job
is there 2 s later, and its first task takes 1 s longer. Decisions happen when a job arrives and
when a task ends. The cluster has 50 executors. Stages with the longest path are first.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.environment import JobEnvironment, WorkloadSource
from studies.training.environments.event_clock import IDLE_S
from studies.training.environments.executor_jobs import ExecutorJob, generated_stages
from studies.training.errors import ImpossiblePlacementError, JobsError
from studies.training.job import JobPlacement, TrainingJob
from studies.training.policy import RunParameters

NODES, GPUS = 50, 1


class ExecutorParameters(RunParameters):
    """Generated jobs, and the cost of a move."""

    job_count: int = Field(default=20, ge=1, le=10_000, description="generated jobs")
    gap_s: float = Field(default=0.0, ge=0, description="mean time between arrivals; 0: at once")
    move_s: float = Field(default=2.0, ge=0, description="delay of an executor of another job")
    warmup_s: float = Field(default=1.0, ge=0, description="added to its first task in the job")


class ExecutorEnvironment(JobEnvironment[ExecutorJob]):
    """Generated graphs of tasks."""

    job_type: ClassVar[type[TrainingJob]] = ExecutorJob
    parameters_type: ClassVar[type[RunParameters]] = ExecutorParameters

    def __init__(
        self, parameters: ExecutorParameters, jobs: Sequence[ExecutorJob], cluster: TrainingCluster
    ) -> None:
        super().__init__(parameters, jobs, cluster)
        self._move_s = parameters.move_s
        self._warmup_s = parameters.warmup_s
        self._jobs_of: dict[int, str] = {}  # where each executor ran last, or moves to
        self._moved_s: dict[int, float] = {}  # when it is there
        self._cold: set[int] = set()  # without a task since then

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Generate jobs; see `JobEnvironment.load`."""
        if source.workload is not None:
            raise JobsError(f"{source.workload}: environment executors reads no workload; omit it")
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(source.seed)))
        submits_s = np.cumsum(random.exponential(1.0, parameters.job_count)) * parameters.gap_s
        jobs = [
            ExecutorJob(
                name=f"job-{number}",
                model="graph",
                submit_s=float(submits_s[number]),
                gpus=1,
                stages=generated_stages(random),
            )
            for number in range(parameters.job_count)
        ]
        return cls(parameters, jobs, source.uniform_cluster(NODES, GPUS))

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Start tasks on idle executors; return the time of the next arrival or end of a task."""
        for job in self._running.values():
            for executor in job.placement.gpus:
                if executor not in job.running_tasks:
                    delay_s = max(0.0, self._moved_s[executor] - now_s)
                    delay_s += self._warmup_s * (executor in self._cold)
                    if job.start_task(executor, now_s, delay_s):
                        self._cold.discard(executor)
        tasks = (task for job in self._running.values() for task in job.running_tasks.values())
        next_s = min(
            self._next_arrival_s(), min((task.end_s for task in tasks), default=inf), wake_s
        )
        return next_s if next_s < inf else now_s + IDLE_S

    def advance(self, now_s: float, next_s: float) -> None:
        """End tasks and jobs."""
        self._drop_arrivals(next_s)
        for job in list(self._running.values()):
            job.executed_s += next_s - now_s
            job.service_gpu_s += (next_s - now_s) * len(job.placement.gpus)
            ended = [gpu for gpu, task in job.running_tasks.items() if task.end_s <= next_s]
            for executor in ended:
                job.end_task(executor)
            if not job.open_tasks:
                job.end_s = next_s
                del self._running[job.name]

    def place(self, job: ExecutorJob, placement: JobPlacement, now_s: float) -> None:
        """Give a job other executors; those with a task stay."""
        stopped = job.busy_gpus - set(placement.gpus)
        if stopped:
            executor = min(stopped)
            end_s = job.running_tasks[executor].end_s
            raise ImpossiblePlacementError(
                f"at {now_s:,.6g} s: job {job.name}: the executor of node "
                f"{self.cluster.node_of[executor]} runs a task until {end_s:,.6g} s and cannot be "
                "taken; choose a policy that takes no GPUs from running jobs"
            )
        for executor in placement.gpus:
            if self._jobs_of.get(executor) != job.name:
                self._jobs_of[executor] = job.name
                self._moved_s[executor] = now_s + self._move_s
                self._cold.add(executor)
        if placement.gpus:
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)
