"""Environment ``pollux``: rounds of 60 s, restarts of 30 s, six measured models.

Jobs follow the published simulator of Pollux (OSDI 2021): also jobs that have not arrived take part
in a round, a job that ends within a round holds its GPUs until the round's end, and each change of
the nodes of a job, also its first start, costs a restart.
"""

from collections import Counter
from typing import Any, ClassVar, Self

from pydantic import Field

from studies.training.environment import JobEnvironment, WorkloadSource
from studies.training.environments.pollux_files import LIMITS, read_model, read_workload
from studies.training.environments.pollux_generated import generated_models, generated_rows
from studies.training.environments.pollux_job import PolluxJob
from studies.training.job import JobPlacement, TrainingJob
from studies.training.policy import RunParameters

NODES, GPUS = 16, 4
GENERATED_NODES = 2  # on which the generated jobs wait, so that policies differ


class PolluxEnvironmentParameters(RunParameters):
    """Lengths of rounds and restarts, and interference."""

    interval_s: float = Field(default=60.0, gt=0, description="seconds between decisions")
    restart_s: float = Field(default=30.0, ge=0, description="seconds without progress")
    interference_ratio: float = Field(
        default=0.0, ge=0, lt=1, description="slow-down of multi-node jobs that share a node"
    )


class PolluxEnvironment(JobEnvironment[PolluxJob]):
    """Jobs of a Pollux workload."""

    job_type: ClassVar[type[TrainingJob]] = PolluxJob
    parameters_type: ClassVar[type[RunParameters]] = PolluxEnvironmentParameters

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a workload and the tables of its models; see `JobEnvironment.load`."""
        models = generated_models()
        names = [*models] if source.data is None else [*models, *LIMITS]
        rows = (
            generated_rows(source.seed)
            if source.workload is None
            else read_workload(source.workload, names)
        )
        if source.data is not None:
            for name in sorted({row.model for row in rows} - models.keys()):
                models[name] = read_model(source.data, name)
        jobs = [PolluxJob(**row._asdict(), tables=models[row.model]) for row in rows]
        nodes = GENERATED_NODES if source.workload is None else NODES
        return cls(parameters, jobs, source.uniform_cluster(nodes, GPUS))

    def begin(self, *, adapts_batch: bool) -> None:
        """Let jobs choose their batch, except those of models that cannot be distributed."""
        for job in self.jobs:
            job.adapts_batch = adapts_batch and job.tables.limits.gpus_max is None

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the end of the round."""
        interval_s: float = self.parameters.interval_s
        return now_s + interval_s

    def advance(self, now_s: float, next_s: float) -> None:
        """Let all placed jobs run for a round."""
        if self.parameters.interference_ratio:
            self._slow_neighbours()
        for job in list(self._running.values()):
            job.advance(now_s, next_s - now_s)
            if job.end_s is not None:
                del self._running[job.name]

    def place(self, job: PolluxJob, placement: JobPlacement, now_s: float) -> None:
        """Restart a job on other nodes; another GPU of the same node is no restart."""
        node_of = self.cluster.node_of
        nodes = [node_of[gpu] for gpu in placement.gpus]
        if nodes == [node_of[gpu] for gpu in job.placement.gpus]:
            return
        job.replace(nodes, self.parameters.restart_s)
        if nodes:
            job.restarts += job.start_s is not None
            self._running[job.name] = job
        else:
            self._running.pop(job.name, None)

    def _slow_neighbours(self) -> None:
        """Slow multi-node jobs that share a node with another one."""
        node_of = self.cluster.node_of
        nodes = {
            job.name: {node_of[gpu] for gpu in job.placement.gpus} for job in self._running.values()
        }
        loads = Counter(
            node for job_nodes in nodes.values() if len(job_nodes) > 1 for node in job_nodes
        )
        for job in self._running.values():
            job_nodes = nodes[job.name]
            shares = len(job_nodes) > 1 and any(loads[node] > 1 for node in job_nodes)
            speed_ratio = 1.0 - self.parameters.interference_ratio * shares
            if speed_ratio != job.speed_ratio:
                job.speed_ratio = speed_ratio
                job.measure()
