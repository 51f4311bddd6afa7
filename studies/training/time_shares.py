"""Rounds that give jobs shares of time: what Gavel's policies have in common.

A policy computes the share of time that each job should hold its GPUs, whenever a job has come or
gone. In each round the jobs that are furthest behind their share run; jobs without a share fill
what is free.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar

from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.free_gpus import FreeGpus
from studies.training.job import JobPlacement, ThroughputJob
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy


class TimeShareParameters(RunParameters):
    """Length of a round."""

    round_s: float = Field(default=360.0, gt=0, description="seconds between decisions")
    reset_s: float = Field(
        default=1920.0, ge=0, description="least time between two computations of shares"
    )


class TimeSharePolicy(TrainingPolicy[ThroughputJob]):
    """Rounds of an allocation that subclasses compute.

    Attributes:
        fills_gpus: true if jobs without a share run on GPUs that would be idle.
    """

    fills_gpus: ClassVar[bool] = True
    parameters_type = TimeShareParameters
    needs = (ThroughputJob,)

    def __init__(self, parameters: TimeShareParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._shares_ratio: Mapping[str, float] = {}
        self._deficits_s: dict[str, float] = {}
        self._received_s: dict[str, float] = {}  # since the last reset, and half a round
        self._reset_s = 0.0
        self._idle_s = inf  # time of a decision without placements
        self._names: list[str] = []  # jobs at the last reset

    @abstractmethod
    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return the share of time of each job, from 0 to 1; a job without one has none."""

    def decide(self, state: JobsState[ThroughputJob]) -> Placements:
        """Run the jobs that are furthest behind their share, as many as fit."""
        now_s, jobs, cluster = state.now_s, state.jobs, state.cluster
        names = [job.name for job in jobs]
        half_round_s = self.parameters.round_s / 2
        for job in jobs:
            received_s = self._received_s.get(job.name, half_round_s)
            self._received_s[job.name] = received_s + job.ran_s
        if names != self._names:
            waited_s = now_s - self._reset_s
            stuck = now_s == self._idle_s  # no arrival came in between
            if waited_s >= self.parameters.reset_s or not self._reset_s or stuck:
                self._reset(now_s, jobs, cluster)
                self._names = names
        free = FreeGpus(cluster)
        decided: dict[str, JobPlacement] = {}
        for job in sorted(jobs, key=self._urgency, reverse=True):
            may_run = self.fills_gpus or self._shares_ratio.get(job.name, 0.0) > 0.0
            if job.name not in decided and may_run and job.gpus <= free.count:
                placement = JobPlacement(free.take_emptiest_first(job.gpus))
                decided[job.name] = placement
                partner = self.partner_of(job.name)
                if partner is not None and partner in names:
                    decided[partner] = placement
        self._idle_s = inf if decided else now_s
        return decided

    def wake_s(self, now_s: float) -> float:
        """Decide again at once if nothing runs, unless a job is still to arrive."""
        return self._idle_s

    def partner_of(self, name: str) -> str | None:
        """Return the job that runs on the same GPUs at the same time; None: none."""
        return None

    def _reset(self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster) -> None:
        elapsed_s = now_s - self._reset_s
        half_round_s = self.parameters.round_s / 2
        deficits_s = {}
        for job in jobs:
            due_s = self._shares_ratio.get(job.name, 0.0) * elapsed_s
            missed_s = due_s - (self._received_s[job.name] - half_round_s)
            deficits_s[job.name] = self._deficits_s.get(job.name, 0.0) + missed_s
        self._deficits_s = deficits_s
        self._received_s = {job.name: half_round_s for job in jobs}
        self._reset_s = now_s
        self._shares_ratio = self.time_shares(now_s, jobs, cluster)

    def _urgency(self, job: ThroughputJob) -> tuple[float, float, float]:
        share_ratio = self._shares_ratio.get(job.name, 0.0)
        received_s = self._received_s[job.name]
        return share_ratio / received_s, self._deficits_s.get(job.name, 0.0), share_ratio
