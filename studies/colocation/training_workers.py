"""Opportunistic training in the share of GPUs that inference leaves, with AntMan's two classes.

Source of the classes: Xiao et al., "AntMan: Dynamic Scaling on GPU Clusters for Deep Learning",
OSDI 2020. Inference is guaranteed: its pods are placed as if there were no training. A worker of
training takes a free share and loses it when a pod needs it. There is always another worker that
waits, so that what they get is the capacity that is left.
"""

from dataclasses import dataclass, field

import numpy as np

from scheduler.ledger.ledger import DoesNotFitError
from scheduler.ledger.reservation import Reservation
from scheduler.model.plan import Configuration
from scheduler.placement.placement import Placer
from workbench.simulation.containers.configurations import anywhere
from workbench.simulation.setup import SimulationState

TRAINING = "training"  # function and namespace of its reservations
MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingClass:
    """Workers of one process on one GPU each.

    Attributes:
        percents: shares that a worker can have, the best first; empty: no training.
        memory_mib, cpus: GPU memory and vCPUs of a worker.
        restart_s: time from a worker's start to its first step.
        checkpoint_s: time between checkpoints; work since the last one is lost with the share.
        release_ms: time that a worker takes to free its share for a pod.
    """

    percents: tuple[int, ...]
    memory_mib: int = 16_384
    cpus: int = 1
    restart_s: float = 30.0
    checkpoint_s: float = 60.0
    release_ms: float = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingShare:
    """Share of the cluster that training got, in GPU hours.

    Attributes:
        hours: length of the run.
        inference_gpu_h: GPU hours that pods of inference held.
        held_gpu_h: GPU hours that workers held.
        useful_gpu_h: GPU hours of workers without restarts and lost work.
        free_gpu_h: GPU hours that nobody held: no worker fits, or its start waits for the next
            second.
        starts, evictions: number of workers that started, and that were evicted.
    """

    hours: float
    inference_gpu_h: float
    held_gpu_h: float
    useful_gpu_h: float
    free_gpu_h: float
    starts: int
    evictions: int


@dataclass(slots=True, eq=False)
class TrainingWorker:
    """A worker: what it holds, and since when."""

    reservation: Reservation
    gpu: int
    begun_ms: float

    def useful_ms(self, now_ms: float, training: TrainingClass, *, is_evicted: bool) -> float:
        """Return the time of its work that is not lost."""
        worked_ms = max(now_ms - self.begun_ms - 1000.0 * training.restart_s, 0.0)
        return worked_ms - (worked_ms % (1000.0 * training.checkpoint_s) if is_evicted else 0.0)


@dataclass(slots=True)
class _Sums:
    """Percent of a GPU times ms."""

    useful_percent_ms: float = 0.0
    held_percent_ms: float = 0.0
    inference_percent_ms: float = 0.0
    free_percent_ms: float = 0.0
    observed_ms: float = field(default=0.0)


class TrainingWorkers:
    """Workers in the ledger of the simulated cluster, placed by the live placement."""

    def __init__(self, state: SimulationState, training: TrainingClass) -> None:
        self._training = training
        self._cluster = state.cluster
        self._ledger = state.cluster.ledger
        self._workers: list[TrainingWorker] = []
        self._sums = _Sums()
        self._starts = self._evictions = 0
        candidates = [
            anywhere(Configuration(1, training.cpus, percent, training.memory_mib, 1.0), gpu_model)
            for percent in training.percents
            for gpu_model in dict.fromkeys(state.cluster.gpu_models)
        ]
        self._offers = state.grants.offers(candidates) if candidates else None
        self._placer = Placer(
            self._ledger.fleet,
            TRAINING,
            cold_ms=0.0,
            policy=state.scenario.placement,
            mix_of=self._ledger.mix,
        )
        self._no_container_ms = np.full(len(state.cluster.gpu_uuids), np.inf)
        self._no_transfer_ms = np.zeros(len(state.cluster.node_names))
        self._no_predecessors = np.empty(0, np.int64)

    def fill(self, now_ms: float) -> None:
        """Start workers until none fits."""
        self.observe(now_ms)
        while self._offers is not None:
            place = self._placer.best_gpu(
                self._offers.table,
                self._no_transfer_ms,
                self._no_container_ms,
                now_ms,
                self._no_predecessors,
            )
            if place is None:
                return
            grant, gpu = self._offers.grants[place[0]], place[1]
            self._starts += 1
            reservation = Reservation(
                uid=f"{TRAINING}-{self._starts}",
                namespace=TRAINING,
                name=f"{TRAINING}-{self._starts}",
                node=self._cluster.node_names[self._cluster.node_of[gpu]],
                cpu_milli=grant.cpu_milli,
                gpu_uuid=self._cluster.gpu_uuids[gpu],
                gpu_percent=grant.percent,
                memory_mib=grant.memory_mib,
                batch=1,
                function=TRAINING,
            )
            self._ledger.assume(reservation)
            self._workers.append(TrainingWorker(reservation, gpu, now_ms))

    def held_percent(self, gpu: int) -> int:
        """Return the share of a GPU that workers hold."""
        return sum(w.reservation.gpu_percent for w in self._workers if w.gpu == gpu)

    def withdraw(self, now_ms: float) -> None:
        """Take all workers out of the ledger: what follows is placed as if there were none."""
        self.observe(now_ms)
        for worker in self._workers:
            self._ledger.release(worker.reservation.uid)

    def restore(self, now_ms: float) -> set[int]:
        """Put the workers back, the largest first; evict the rest and return their GPUs."""
        evicted_gpus: set[int] = set()
        remaining = []
        for worker in sorted(self._workers, key=lambda w: -w.reservation.gpu_percent):
            try:
                self._ledger.assume(worker.reservation)
            except DoesNotFitError:
                evicted_gpus.add(worker.gpu)
                self._evictions += 1
                self._count_work(worker, now_ms, is_evicted=True)
            else:
                remaining.append(worker)
        self._workers = remaining
        return evicted_gpus

    def observe(self, now_ms: float) -> None:
        """Integrate what has been held since the last call."""
        sums = self._sums
        passed_ms = now_ms - sums.observed_ms
        training_percent = sum(worker.reservation.gpu_percent for worker in self._workers)
        inference_percent = self._cluster.utilisation.held_percent
        sums.held_percent_ms += passed_ms * training_percent
        sums.inference_percent_ms += passed_ms * inference_percent
        capacity_percent = 100 * len(self._cluster.gpu_uuids)
        sums.free_percent_ms += passed_ms * (
            capacity_percent - training_percent - inference_percent
        )
        sums.observed_ms = now_ms

    def close(self, now_ms: float) -> None:
        """End all workers; their work counts."""
        self.withdraw(now_ms)
        for worker in self._workers:
            self._count_work(worker, now_ms, is_evicted=False)
        self._workers.clear()

    def share(self) -> TrainingShare:
        """Return what training got until the last observation."""
        sums, hour = self._sums, 100 * MS_PER_HOUR
        return TrainingShare(
            hours=sums.observed_ms / MS_PER_HOUR,
            inference_gpu_h=sums.inference_percent_ms / hour,
            held_gpu_h=sums.held_percent_ms / hour,
            useful_gpu_h=sums.useful_percent_ms / hour,
            free_gpu_h=sums.free_percent_ms / hour,
            starts=self._starts,
            evictions=self._evictions,
        )

    def _count_work(self, worker: TrainingWorker, now_ms: float, *, is_evicted: bool) -> None:
        useful_ms = worker.useful_ms(now_ms, self._training, is_evicted=is_evicted)
        self._sums.useful_percent_ms += useful_ms * worker.reservation.gpu_percent
