"""QSSF: the job with the least predicted service runs first, without preemption.

Source: Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
Datacenters", SC 2021 (Helios): Quasi-Shortest-Service-First. Past jobs like a new one predict its
run time; the queue is in order of that time multiplied by the GPUs, and nothing passes a job that
does not fit.

Ours: jobs are alike by model and number of GPUs, else by model, else all are. A job like none that
has ended goes first, because only its end teaches anything.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

from studies.training.job import TrainingJob
from studies.training.ordered import OrderedPolicy
from studies.training.policy import JobsState, Placements, RunParameters

Kind = tuple[str, int] | str | None
"""Model and GPUs, model, or any job."""


class Qssf(OrderedPolicy[TrainingJob]):
    """Order by predicted GPU-seconds; running jobs keep their GPUs."""

    strict: ClassVar[bool] = True

    def __init__(self, parameters: RunParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._active: dict[str, TrainingJob] = {}
        self._ended_s: dict[Kind, list[float]] = defaultdict(list)

    def decide(self, state: JobsState[TrainingJob]) -> Placements:
        """Learn from the jobs that have ended, then place."""
        for job in self._active.values():
            if job.end_s is not None:
                for kind in _kinds(job):
                    self._ended_s[kind].append(job.executed_s)
        self._active = {job.name: job for job in state.jobs}
        return super().decide(state)

    def order(self, jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
        """Return the running jobs, then the others by predicted service."""
        return sorted(jobs, key=lambda job: (not job.running, self.predicted_gpu_s(job)))

    def predicted_gpu_s(self, job: TrainingJob) -> float:
        """Return the mean run time of the jobs most like this one, times its GPUs; 0: none."""
        times_s = next((self._ended_s[k] for k in _kinds(job) if k in self._ended_s), [0.0])
        return fmean(times_s) * job.gpus


def _kinds(job: TrainingJob) -> tuple[Kind, ...]:
    return (job.model, job.gpus), job.model, None
