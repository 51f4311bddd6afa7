"""Environment ``servers``: workers and parameter servers, utilities, and an end of time.

After OASiS' model (INFOCOM 2018), with generated jobs. A worker is a GPU and trains chunks of
data at its own speed; the parameter servers of a job need CPUs, which all nodes pool. Where jobs
need more of them than there are, all train more slowly. Decisions happen at each time slot, a job
ends with a slot, and changes cost nothing. At the end of the last slot, jobs that are not complete
end without utility. The cluster is 8 nodes of 4 GPUs and 12 CPUs.
"""

from dataclasses import dataclass, field
from math import ceil, tanh
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from studies.training.cluster import TrainingCluster, TrainingNode
from studies.training.environment import JobEnvironment, WorkloadSource
from studies.training.errors import JobsError
from studies.training.job import Deadline, DeadlineJob, ElasticJob, ParameterServerJob, TrainingJob
from studies.training.policy import RunParameters
from studies.training.result import JobsResult

NODES, GPUS = 8, 4
CPUS_PER_GPU = 3
_ROUNDING = 1e-9
_TARGET_SLOTS = (1.0, 15.0)  # completion with half of the importance
_IMPORTANCE = (1.0, 100.0)
_URGENCY_PER_SLOT = ((0.0, 0.0), (0.01, 1.0), (4.0, 6.0))  # insensitive, sensitive, critical
_URGENCY_RATIOS = (0.1, 0.55, 0.35)
_CHUNKS = (4, 16)
_EPOCHS = (1, 8)
_CHUNK_SLOTS = (0.25, 1.0)  # time of a chunk
_SERVERS_PER_WORKER = (0.1, 0.5)  # bandwidth of a worker over that of a server
_SERVER_CPUS = (1, 10)


class ServerParameters(RunParameters):
    """Time slots, and generated jobs."""

    slot_s: float = Field(default=300.0, gt=0, description="length of a time slot")
    slots: int = Field(default=100, ge=20, le=10_000, description="slots until the end")
    load_ratio: float = Field(
        default=1.0, gt=0, le=100, description="GPU-seconds of generated jobs over those of all"
    )


@dataclass(slots=True, kw_only=True, eq=False)
class UtilityJob(ParameterServerJob, DeadlineJob, ElasticJob):
    """A job whose utility falls as a logistic function of its completion time.

    Attributes:
        servers_per_worker: bandwidth of a worker over that of a parameter server.
        importance: twice the utility of a completion at the target.
        urgency_per_s: steepness of the fall; 0: the utility is the same at any time.
        target_s: completion time with half of the importance.
        trained_chunks: trained chunks, of all epochs together.
    """

    chunks: int = field()
    epochs: int = field()
    chunk_s: float = field()
    server_cpus: int = field()
    servers_per_worker: float
    importance: float
    urgency_per_s: float
    target_s: float
    trained_chunks: float = 0.0

    @property
    def complete(self) -> bool:
        """Return true if all chunks are trained."""
        return self.remaining_iterations <= _ROUNDING

    @property
    def remaining_iterations(self) -> float:
        """Chunks that remain, of all epochs together."""
        return self.epochs * self.chunks - self.trained_chunks

    @property
    def remaining_s(self) -> float:
        """Remaining time with the requested number of workers."""
        return self.remaining_iterations * self.iteration_s(self.gpus)

    @property
    def gpus_max(self) -> int:
        """A worker for each chunk."""
        return self.chunks

    def iteration_s(self, gpus: int) -> float:
        """Return the time in which so many workers train one chunk."""
        return self.chunk_s / min(gpus, self.chunks)

    @property
    def deadlines(self) -> tuple[Deadline, ...]:
        """Target, if the utility falls."""
        return (Deadline(self.submit_s + self.target_s),) if self.urgency_per_s else ()

    def servers(self, workers: int) -> int:
        """Return the parameter servers with the bandwidth of so many workers."""
        return ceil(workers * self.servers_per_worker - _ROUNDING)

    def utility(self, completion_s: float) -> float:
        """Return the value of a completion so long after the submission."""
        late = self.urgency_per_s * (completion_s - self.target_s)
        return self.importance * (1.0 - tanh(late / 2)) / 2  # logistic, without an overflow


class ServerEnvironment(JobEnvironment[UtilityJob]):
    """Generated jobs with parameter servers."""

    job_type: ClassVar[type[TrainingJob]] = UtilityJob
    parameters_type: ClassVar[type[RunParameters]] = ServerParameters

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Generate jobs; see `JobEnvironment.load`."""
        if source.workload is not None:
            raise JobsError(f"{source.workload}: environment servers reads no workload; omit it")
        gpus = source.gpus or GPUS
        node = TrainingNode(gpus, cpus=CPUS_PER_GPU * gpus)
        cluster = TrainingCluster((node,) * (source.nodes or NODES))
        return cls(parameters, generated_jobs(parameters, cluster, source.seed), cluster)

    def next_s(self, now_s: float, wake_s: float) -> float:
        """Return the end of the slot."""
        slot_s: float = self.parameters.slot_s
        return now_s + slot_s

    def advance(self, now_s: float, next_s: float) -> None:
        """Let workers train for a slot; after the last slot, end all jobs."""
        seconds = next_s - now_s
        running = list(self._running.values())
        needed = sum(job.servers(len(job.placement.gpus)) * job.server_cpus for job in running)
        available = sum(node.cpus for node in self.cluster.nodes)
        speed_ratio = min(1.0, available / needed) if needed else 1.0
        for job in running:
            gpus = len(job.placement.gpus)
            job.trained_chunks += speed_ratio * seconds / job.iteration_s(gpus)
            job.executed_s += seconds
            job.service_gpu_s += seconds * gpus
            if job.complete:
                job.end_s = next_s
                del self._running[job.name]
        if next_s >= self.parameters.slots * self.parameters.slot_s - _ROUNDING:
            self._running.clear()
            for job in self.jobs:
                if job.end_s is None:
                    job.end_s = max(next_s, job.submit_s)

    def lost_utility_ratio(self, result: JobsResult) -> float:
        """Return the part of the largest utility of all jobs that a result lacks."""
        slot_s: float = self.parameters.slot_s
        reached = largest = 0.0
        for job, record in zip(self.jobs, result.jobs, strict=True):
            largest += job.largest_utility(slot_s)
            reached += job.utility(record.jct_s) if job.complete else 0.0
        return 1.0 - reached / largest


def generated_jobs(
    parameters: ServerParameters, cluster: TrainingCluster, seed: int
) -> list[UtilityJob]:
    """Return jobs whose target is neither after the end nor before what all workers reach."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    slot_s = parameters.slot_s
    demand_s = parameters.load_ratio * cluster.gpus * parameters.slots * slot_s
    latest_s = (parameters.slots - _TARGET_SLOTS[1]) * slot_s
    jobs: list[UtilityJob] = []
    while demand_s > 0:
        chunks = int(random.integers(*_CHUNKS, endpoint=True))
        epochs = int(random.integers(*_EPOCHS, endpoint=True))
        chunk_slots = float(random.uniform(*_CHUNK_SLOTS))
        target_slots = max(float(random.uniform(*_TARGET_SLOTS)), epochs * chunk_slots)
        urgency = _URGENCY_PER_SLOT[int(random.choice(len(_URGENCY_RATIOS), p=_URGENCY_RATIOS))]
        job = UtilityJob(
            name=f"job-{len(jobs)}",
            model="generated",
            submit_s=float(random.uniform(0.0, latest_s)),
            gpus=min(int(random.integers(1, chunks, endpoint=True)), cluster.gpus),
            chunks=chunks,
            epochs=epochs,
            chunk_s=chunk_slots * slot_s,
            server_cpus=int(random.integers(*_SERVER_CPUS, endpoint=True)),
            servers_per_worker=float(random.uniform(*_SERVERS_PER_WORKER)),
            importance=float(random.uniform(*_IMPORTANCE)),
            urgency_per_s=float(random.uniform(*urgency)) / slot_s,
            target_s=target_slots * slot_s,
        )
        demand_s -= job.epochs * job.chunks * job.chunk_s
        jobs.append(job)
    return sorted(jobs, key=lambda job: job.submit_s)
