"""Training job: its request, its state in a run, and what environments may know of its speed.

An environment's jobs derive from the capabilities that its traces supply: abstract classes of jobs,
which a job may combine because they have no fields. A policy names the capabilities that it reads,
so it runs in each environment that supplies them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray


class JobPlacement(NamedTuple):
    """GPUs of a job, and its shares of their nodes where an environment shares these out.

    Attributes:
        gpus: numbers of GPUs in the order of the job's processes; empty: the job waits.
        cpus: CPUs on all its nodes together.
        memory_gib: memory on all its nodes together.
    """

    gpus: tuple[int, ...] = ()
    cpus: int = 0
    memory_gib: float = 0.0


WAITING = JobPlacement()
TrainingJobT = TypeVar("TrainingJobT", bound="TrainingJob")


@dataclass(slots=True, kw_only=True, eq=False)
class TrainingJob(ABC):
    """One job; the engine and the environment change its state, and policies read it.

    Attributes:
        name: name, unique in the workload.
        model: name of the trained model or of the kind of job.
        submit_s: time of its arrival.
        gpus: requested number of GPUs.
        placement: current GPUs.
        service_gpu_s: GPU-seconds received, restarts included.
        executed_s: seconds with GPUs, restarts included.
        restarts: number of changed placements of the job while it had run before.
        start_s, end_s: times of first placement and completion; None before.
    """

    name: str
    model: str
    submit_s: float
    gpus: int
    placement: JobPlacement = WAITING
    service_gpu_s: float = 0.0
    executed_s: float = 0.0
    restarts: int = 0
    start_s: float | None = None
    end_s: float | None = None

    @property
    def running(self) -> bool:
        """Return true if the job has GPUs."""
        return bool(self.placement.gpus)


class PredictableJob(TrainingJob):
    """Capability: the remaining run time is known.

    A property of a capability may be a field of the job; as ``field()`` it does not take the
    property for its default.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def remaining_s(self) -> float:
        """Seconds of work at the requested number of GPUs."""


class ElasticJob(TrainingJob):
    """Capability: the time of an iteration at any number of GPUs, at the job's fixed batch."""

    __slots__ = ()

    @property
    @abstractmethod
    def gpus_max(self) -> int:
        """Largest useful number of GPUs."""

    @property
    @abstractmethod
    def remaining_iterations(self) -> float:
        """Iterations until completion."""

    @abstractmethod
    def iteration_s(self, gpus: int) -> float:
        """Return the time of one iteration on so many GPUs, packed on the fewest nodes."""


class GoodputJob(TrainingJob):
    """Capability: a job measures its speed, fits a model to it, and chooses its batch by it."""

    __slots__ = ()

    @property
    @abstractmethod
    def gpus_limit(self) -> int:
        """Number of GPUs up to which its model is believed."""

    @abstractmethod
    def goodputs(self, gpus: int) -> NDArray[np.float64] | None:
        """Return modelled goodput on one node (row 0) and on several (row 1), by GPUs.

        Returns:
            (2, gpus + 1); None before the first measurement.
        """


class DemandingJob(PredictableJob):
    """Capability: the speed depends on the CPUs and the memory for each GPU."""

    __slots__ = ()

    @property
    @abstractmethod
    def cpus_per_gpu(self) -> int:
        """CPUs for each GPU beyond which the job gains nothing."""

    @property
    @abstractmethod
    def memory_gib_per_gpu(self) -> float:
        """Memory for each GPU beyond which the job gains nothing."""

    @property
    @abstractmethod
    def demand_speed_ratio(self) -> float:
        """Return the speed with the full demand over that at the proportional share."""

    @property
    @abstractmethod
    def ideal_s(self) -> float:
        """Return the whole run time at the proportional share of CPUs and memory."""


class SharableJob(PredictableJob):
    """Capability: how much a neighbour on the same GPUs slows the job down."""

    __slots__ = ()

    @abstractmethod
    def slowdown_ratio(self, neighbour: "SharableJob") -> float:
        """Return run time with the neighbour over run time alone, at least 1.

        Returns:
            inf where the memory of a GPU does not hold both.
        """


class Deadline(NamedTuple):
    """Time by which a job should end, and the value of that."""

    time_s: float
    value: float = 1.0


class DeadlineJob(PredictableJob):
    """Capability: deadlines."""

    __slots__ = ()

    @property
    @abstractmethod
    def deadlines(self) -> tuple[Deadline, ...]:
        """Deadlines in ascending order; none: best effort."""

    @property
    def deadline_s(self) -> float:
        """First deadline; inf: none."""
        return self.deadlines[0].time_s if self.deadlines else inf


class SpreadJob(TrainingJob):
    """Capability: the loss of speed if the requested GPUs are spread over nodes."""

    __slots__ = ()

    @property
    @abstractmethod
    def spread_speeds(self) -> Mapping[int, float]:
        """Relative speed by the number of nodes with equal parts, the fewest first."""

    def speed_ratio(self, nodes: int) -> float:
        """Return the speed on so many nodes; between two known numbers, that of the larger."""
        speeds = self.spread_speeds
        nearest = min((count for count in speeds if count >= nodes), default=None)
        return min(speeds.values()) if nearest is None else speeds[nearest]


class ClassedJob(TrainingJob):
    """Capability: the job is guaranteed its GPUs, or runs on what guaranteed ones leave."""

    __slots__ = ()

    @property
    @abstractmethod
    def guaranteed(self) -> bool:
        """Return true if no other job may slow the job down."""


class HeterogeneousJob(TrainingJob):
    """Capability: the run time by GPU model and number of GPUs, and the price of delay."""

    __slots__ = ()

    @abstractmethod
    def options(self, gpu_model: str) -> tuple[int, ...]:
        """Return the numbers of GPUs of one node that the job can run on."""

    @abstractmethod
    def remaining_on_s(self, gpu_model: str, gpus: int) -> float:
        """Return the remaining run time on one of these options."""

    @property
    @abstractmethod
    def late_cost_per_s(self) -> float:
        """Cost of each second after the deadline; also the job's weight."""


class ParameterServerJob(TrainingJob):
    """Capability: workers of one GPU each train chunks of data, with parameter servers on CPUs.

    Workers do not wait for one another, so each trains chunks at the same speed.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def chunks(self) -> int:
        """Chunks of the data, which is the largest useful number of workers."""

    @property
    @abstractmethod
    def epochs(self) -> int:
        """Number of times that each chunk is trained."""

    @property
    @abstractmethod
    def chunk_s(self) -> float:
        """Time of a worker for one chunk, including its exchange with the servers."""

    @property
    @abstractmethod
    def server_cpus(self) -> int:
        """CPUs of a parameter server."""

    @abstractmethod
    def servers(self, workers: int) -> int:
        """Return the least parameter servers with the bandwidth of so many workers."""

    @abstractmethod
    def utility(self, completion_s: float) -> float:
        """Return the value of a completion so long after the submission; it never rises."""

    def largest_utility(self, slot_s: float) -> float:
        """Return the utility with a worker for each chunk, where jobs end with a time slot."""
        return self.utility(slot_s * ceil(self.epochs * self.chunk_s / slot_s))


class ThroughputJob(PredictableJob):
    """Capability: steps per second at the requested GPUs, alone and next to another job."""

    __slots__ = ()

    @property
    @abstractmethod
    def ran_s(self) -> float:
        """Seconds with GPUs in the last round."""

    @property
    @abstractmethod
    def remaining_steps(self) -> int:
        """Steps until completion."""

    @property
    @abstractmethod
    def weight_ratio(self) -> float:
        """Importance next to other jobs; 1 is usual."""

    @abstractmethod
    def throughput_rps(self, neighbour: "ThroughputJob | None" = None) -> float:
        """Return steps per second, alone or with a neighbour on all GPUs; 0: it does not fit."""


class DagJob(PredictableJob):
    """Capability: stages of tasks, of which each runs on one GPU until it ends."""

    __slots__ = ()

    @property
    @abstractmethod
    def busy_gpus(self) -> frozenset[int]:
        """GPUs with a task, which the job keeps until it ends."""

    @property
    @abstractmethod
    def ready_tasks(self) -> int:
        """Tasks that may start and have no GPU."""

    @property
    @abstractmethod
    def waiting_tasks(self) -> int:
        """Tasks that have no GPU, also those whose parents have not ended."""

    @property
    @abstractmethod
    def open_tasks(self) -> int:
        """Tasks that have not ended."""

    @property
    @abstractmethod
    def remaining_work_s(self) -> float:
        """Time of these tasks one after the other."""

    @property
    @abstractmethod
    def critical_path_s(self) -> float:
        """Remaining time on any number of GPUs."""
