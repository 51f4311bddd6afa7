"""Pollux: GPUs by a genetic search for the largest goodput of all jobs together.

Source: Qiao et al., "Pollux", OSDI 2021. Each job's speed-up is its modelled goodput over that on a
fair share of the GPUs; the search maximises their harmonic mean over matrices of GPUs by job and
node. A job whose GPUs change counts less, because a restart costs time. A second objective, the sum
of speed-ups over the GPUs of the nodes in use, keeps states apart that the first one would crowd
out (NSGA-II, Deb et al. 2002). The states that no other one dominates begin the next decision.
Numbers of mutations and crossovers are those of the published simulator.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.free_gpus import FreeGpus
from studies.training.job import GoodputJob, JobPlacement
from studies.training.policies.pollux_kernels import search
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy

RESTART_S = 30.0  # that the policy reckons with
_MULTIPLIER = 0x9E3779B97F4A7C15  # spreads seeds over words


class PolluxParameters(RunParameters):
    """Size of the search."""

    population: int = Field(default=100, ge=2, le=10_000, description="states of a generation")
    generations: int = Field(default=100, ge=1, le=10_000, description="of a decision")
    apart: bool = Field(default=True, description="multi-node jobs share no node")


class Pollux(TrainingPolicy[GoodputJob]):
    """Search of GPUs by job and node; jobs choose their batch themselves."""

    parameters_type = PolluxParameters
    needs = (GoodputJob,)
    adapts_batch = True

    def __init__(self, parameters: PolluxParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._population = parameters.population
        self._generations = parameters.generations
        self._apart = parameters.apart
        word = ((seed + 1) * _MULTIPLIER) % 2**64
        self._random = np.array([word or 1], np.uint64)
        self._states: NDArray[np.uint8] | None = None  # of the last decision
        self._names: dict[str, int] = {}  # rows of these

    def decide(self, state: JobsState[GoodputJob]) -> Placements:
        """Search, and give GPU numbers to the jobs whose row changed."""
        now_s, jobs, cluster, placements = state
        ordered = sorted(jobs, key=lambda job: (job.service_gpu_s, job.submit_s))
        base = _rows(ordered, cluster)
        limits = np.array([job.gpus_limit for job in ordered], np.int64)
        half = self._population
        states = np.zeros((2 * half, *base.shape), np.uint8)
        initial_count = self._begin(states, base, ordered)
        order = np.zeros(2 * half, np.int64)
        best = search(
            states,
            np.zeros((2 * half, 2)),
            np.zeros(2 * half, np.uint64),
            order,
            initial_count,
            base,
            np.array([len(cluster.gpus_of(n)) for n in range(len(cluster.nodes))], np.int64),
            limits,
            _speedups(ordered, limits, cluster),
            np.array([_restart_factor(now_s, job) for job in ordered]),
            self._apart,
            self._generations,
            self._random,
        )
        self._states = states[order[:best]]
        self._names = {job.name: row for row, job in enumerate(ordered)}
        return _placements(ordered, states[order[0]], base, cluster, placements)

    def _begin(
        self, states: NDArray[np.uint8], base: NDArray[np.uint8], jobs: Sequence[GoodputJob]
    ) -> int:
        """Write the best states of the last decision, or the current one; return their number."""
        if self._states is None:
            states[0] = base
            return 1
        count = len(self._states)
        for row, job in enumerate(jobs):
            if job.name in self._names:
                states[:count, row] = self._states[:, self._names[job.name]]
        return count


def _rows(jobs: Sequence[GoodputJob], cluster: TrainingCluster) -> NDArray[np.uint8]:
    """Return the current GPUs by job and node."""
    rows = np.zeros((len(jobs), len(cluster.nodes)), np.uint8)
    for row, job in enumerate(jobs):
        for gpu in job.placement.gpus:
            rows[row, cluster.node_of[gpu]] += 1
    return rows


def _speedups(
    jobs: Sequence[GoodputJob], limits: NDArray[np.int64], cluster: TrainingCluster
) -> NDArray[np.float64]:
    """Return weighted speed-ups by job, by one node or several, by GPUs."""
    weight = len(cluster.nodes) / cluster.gpus
    fair = ceil(cluster.gpus / len(jobs))
    speedups = np.zeros((len(jobs), 2, int(limits.max()) + 1))
    for row, job in enumerate(jobs):
        gpus = int(limits[row])
        table = job.goodputs(max(gpus, fair))
        if table is None:
            speedups[row, :, : gpus + 1] = np.arange(gpus + 1) / fair
        else:
            reference = table[0, fair] or table.max()  # as if on one node
            speedups[row, :, : gpus + 1] = table[:, : gpus + 1] / reference
    return weight * speedups


def _restart_factor(now_s: float, job: GoodputJob) -> float:
    age_s = now_s - job.submit_s
    return max(age_s - RESTART_S * job.restarts, 0.0) / (age_s + RESTART_S)


def _placements(
    jobs: Sequence[GoodputJob],
    state: NDArray[np.uint8],
    base: NDArray[np.uint8],
    cluster: TrainingCluster,
    placements: Placements,
) -> dict[str, JobPlacement]:
    same = (state == base).all(axis=1)
    decided = {
        job.name: placements[job.name]
        for row, job in enumerate(jobs)
        if same[row] and job.name in placements
    }
    free = FreeGpus(cluster, decided.values())
    for row, job in enumerate(jobs):
        if not same[row] and state[row].any():
            gpus: tuple[int, ...] = ()
            for node in np.flatnonzero(state[row]).tolist():
                gpus += free.take(node, int(state[row, node]))
            decided[job.name] = JobPlacement(gpus)
    return decided
