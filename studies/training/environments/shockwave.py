"""Environment ``shockwave``: rounds of 120 s, and jobs that change their batch on the way.

The form of the public simulator of Shockwave (NSDI 2023). A job trains a number of epochs. In mode
``accordion`` it takes the largest batch outside of critical epochs, in mode ``gns`` it doubles its
batch several times; both change the time of an epoch. A job that did not run in the round before
loses 20 s of a whole round. The cluster is 8 nodes of 4 GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar

from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.environment import WorkloadSource
from studies.training.environments.gavel import (
    GavelEnvironment,
    GavelEnvironmentParameters,
    GavelJob,
)
from studies.training.environments.gavel_throughputs import Throughputs
from studies.training.environments.shockwave_files import (
    MODELS,
    generated_rows,
    read_workload,
    step_rps,
    throughputs_rps,
)
from studies.training.job import TrainingJob
from studies.training.policy import RunParameters

_WHOLE_ROUND_SLACK_S = 5.0  # a shorter round is a job's last one, and a restart costs nothing
_DOUBLING_EPOCH = 10  # of mode gns; the next doublings follow when the number of epochs has doubled
_LATE_DOUBLING_EPOCHS = {"ResNet-50": 100}
_CRITICAL_EPOCHS_USUAL = 10  # first ones
_CRITICAL_EPOCHS = {
    ("ResNet-18", 256): 20,
    ("Recommendation", 512): 30,
    ("Recommendation", 1024): 30,
    ("Recommendation", 2048): 40,
}
_LATER = {"ResNet-18": (150, 250)}  # first of ten more critical epochs
_DECAY_EPOCHS = 30  # of ResNet-50: after each decay of the learning rate, epochs are critical again


class ShockwaveParameters(GavelEnvironmentParameters):
    """Length of a round, and cost of a restart."""

    round_s: float = Field(default=120.0, gt=0, description="seconds between decisions")
    restart_s: float = Field(default=20.0, ge=0, description="part of a round that is lost")


@dataclass(slots=True, kw_only=True, eq=False)
class ShockwaveJob(GavelJob):
    """A job of a known number of epochs.

    Attributes:
        first_batch, batch: initial and current batch.
        mode: rule by which the batch changes.
        batches_rps: steps per second by batch, of the batches in the trace.
        epoch_count: total number of epochs.
        done_epoch_count: number of completed epochs, with a fraction for the current one.
        counted_count: number of steps that are in `done_epoch_count`.
    """

    first_batch: int
    batch: int
    mode: str
    batches_rps: Mapping[int, float]
    epoch_count: float = field(init=False)
    done_epoch_count: float = 0.0
    counted_count: int = 0

    def __post_init__(self) -> None:
        self.epoch_count = self.steps / self.epoch_steps

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch at the current batch."""
        return ceil(MODELS[self.model].samples / self.batch)

    def alone_s(self) -> float:
        """Return the time of all epochs without interruption."""
        samples = MODELS[self.model].samples
        time_s, epoch = 0.0, 0
        while epoch < self.epoch_count:
            batch = batch_of(self.model, self.mode, self.first_batch, epoch)
            epoch_s = ceil(samples / batch) / step_rps(self.batches_rps, batch)
            time_s += min(1.0, self.epoch_count - epoch) * epoch_s
            epoch += 1
        return time_s

    def adapt(self) -> None:
        """Count epochs, and change the batch where the mode says so."""
        self.done_epoch_count += (self.done_count - self.counted_count) / self.epoch_steps
        self.counted_count = self.done_count
        batch = batch_of(self.model, self.mode, self.first_batch, int(self.done_epoch_count))
        if batch != self.batch and self.remaining_steps > 0:
            epochs = self.remaining_steps / self.epoch_steps
            self.batch = batch
            self.steps = self.done_count + ceil(epochs * self.epoch_steps)
            self.throughputs = Throughputs(step_rps(self.batches_rps, batch), {})


class ShockwaveEnvironment(GavelEnvironment):
    """Jobs of a Shockwave trace."""

    job_type: ClassVar[type[TrainingJob]] = ShockwaveJob
    parameters_type: ClassVar[type[RunParameters]] = ShockwaveParameters
    size: ClassVar[tuple[int, int]] = (8, 4)

    jobs: Sequence[ShockwaveJob]

    def __init__(
        self,
        parameters: ShockwaveParameters,
        jobs: Sequence[ShockwaveJob],
        cluster: TrainingCluster,
    ) -> None:
        super().__init__(parameters, jobs, cluster)
        self._restart_s = parameters.restart_s
        self._resumed: set[str] = set()

    @classmethod
    def jobs_of(cls, parameters: Any, source: WorkloadSource) -> Sequence[ShockwaveJob]:  # noqa: ARG003
        """Read or generate the jobs; throughputs follow from all of them."""
        workload = source.workload
        rows = generated_rows(source.seed) if workload is None else read_workload(workload)
        throughputs = throughputs_rps(rows)
        jobs = []
        for row in rows:
            batches_rps = throughputs[row.job.model, row.job.gpus]
            jobs.append(
                ShockwaveJob(
                    **row.job._asdict(),
                    throughputs=Throughputs(batches_rps[row.batch], {}),
                    first_batch=row.batch,
                    batch=row.batch,
                    mode=row.mode,
                    batches_rps=batches_rps,
                )
            )
        return jobs

    def advance(self, now_s: float, next_s: float) -> None:
        """Let placed jobs run the steps of a round, then change batches."""
        self._resumed = {job.name for job in self._running.values() if not job.ran_s}
        super().advance(now_s, next_s)
        for job in self.jobs:
            if job.ran_s:
                job.adapt()

    def _done_steps(self, job: GavelJob, runs_s: float) -> int:
        steps = super()._done_steps(job, runs_s)
        if job.name in self._resumed and runs_s > self._round_s - _WHOLE_ROUND_SLACK_S:
            return int(steps * max(0.0, 1 - self._restart_s / runs_s))
        return steps


def batch_of(model: str, mode: str, first_batch: int, epoch: int) -> int:
    """Return the batch of an epoch, counted from 0."""
    batch_max = max(first_batch, MODELS[model].batch_max)
    if mode == "static" or model == "Transformer":
        return first_batch
    if mode == "accordion":
        return first_batch if _critical(model, first_batch, epoch) else batch_max
    doubling_epoch, batch = _LATE_DOUBLING_EPOCHS.get(model, _DOUBLING_EPOCH), first_batch
    while epoch >= doubling_epoch and batch < batch_max:
        doubling_epoch, batch = 2 * doubling_epoch, 2 * batch
    return min(batch, batch_max)


def _critical(model: str, first_batch: int, epoch: int) -> bool:
    """Return true if the accuracy would suffer from a large batch in this epoch."""
    first_epochs = _CRITICAL_EPOCHS.get((model, first_batch), _CRITICAL_EPOCHS_USUAL)
    since_decay = epoch % _DECAY_EPOCHS if model == "ResNet-50" else epoch
    later = (begin <= epoch < begin + _CRITICAL_EPOCHS_USUAL for begin in _LATER.get(model, ()))
    return since_decay < first_epochs or any(later)
