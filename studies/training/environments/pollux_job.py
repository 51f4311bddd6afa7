"""Job of the environment ``pollux``: progress by goodput, which batch and placement decide."""

from dataclasses import dataclass, field
from itertools import groupby
from math import ceil

from studies.training.environments.pollux_models import TrainingModel
from studies.training.goodput import best_division, fit_model, goodputs
from studies.training.goodput_kernels import Floats
from studies.training.job import ElasticJob, GoodputJob

ROUNDING = 1e-8  # subtracted before rounding up, as in the public simulator
GPUS_LIMIT = 64  # of a job whose batch is adapted
GPUS_PER_NODE = 4  # of the packed placements that predictions assume


@dataclass(slots=True, kw_only=True, eq=False)
class PolluxJob(ElasticJob, GoodputJob):
    """A job that trains one model for a fixed number of epochs.

    Attributes:
        batch: requested batch size over all GPUs.
        counts: GPUs per node, in the order of its processes.
        local_batch, accumulation_steps: division of the batch under the current placement.
        epoch: current epoch, from 0.
        progress_count: number of iterations at the initial batch with the same progress.
        delay_s: remaining time of the restart.
        adapts_batch: true if the job chooses its batch, unless its model has a fixed one.
        speed_ratio: ratio of the speed to that without neighbours.
    """

    tables: TrainingModel
    batch: int
    counts: tuple[int, ...] = ()
    local_batch: int = 0
    accumulation_steps: int = 0
    epoch: int = 0
    progress_count: float = 0.0
    delay_s: float = 0.0
    adapts_batch: bool = False
    speed_ratio: float = 1.0
    _goodput_rps: float = 0.0
    _epoch_count: float = 0.0
    _iteration_s: dict[int, float] = field(default_factory=dict)
    _profile: dict[tuple[int, int, int], tuple[float, float]] = field(default_factory=dict)
    _model: Floats | None = None
    _gradients: tuple[float, float] = (0.0, 0.0)
    _stale: bool = False
    _goodputs: Floats | None = None

    @property
    def gpus_max(self) -> int:
        """Largest number of GPUs that the batch can be divided among."""
        limits = self.tables.limits
        return limits.gpus_max or self.batch // limits.local_batch_min

    @property
    def remaining_iterations(self) -> float:
        """Iterations at the requested batch; 1 in the last epoch."""
        return self.tables.iterations_after(self.epoch, self.batch)

    def iteration_s(self, gpus: int) -> float:
        """Return the time of an iteration at the requested batch on packed nodes.

        As in the public simulator the prediction for one GPU accumulates at any batch.
        """
        if gpus not in self._iteration_s:
            local, steps = self.divided(self.batch, gpus, accumulates=gpus == 1)
            nodes, remaining_gpus = divmod(gpus, GPUS_PER_NODE)
            counts = (GPUS_PER_NODE,) * nodes + ((remaining_gpus,) if remaining_gpus else ())
            step_s, sync_s = self.tables.step_s(counts, local)
            self._iteration_s[gpus] = step_s + (step_s - sync_s) * steps
        return self._iteration_s[gpus]

    def divided(self, batch: int, gpus: int, *, accumulates: bool = False) -> tuple[int, int]:
        """Return local batch and accumulation steps that make up a batch on so many GPUs.

        Args:
            batch: samples of an iteration.
            gpus: number of GPUs.
            accumulates: true if there is at least one accumulation step. Default: only on one GPU
                with a batch above the initial one.
        """
        tables = self.tables
        share = ceil(batch / gpus - ROUNDING)
        steps = ceil(share / tables.limits.local_batch_max - ROUNDING) - 1
        if accumulates or (gpus == 1 and batch > tables.initial_batch):
            steps = max(1, steps)
        local = ceil(share / (steps + 1) - ROUNDING)
        return min(local, tables.largest_batch // (gpus * (steps + 1))), steps

    def replace(self, nodes: list[int], restart_s: float) -> None:
        """Move to other nodes: the run lengths of equal nodes are the GPUs per node."""
        self.counts = tuple(len(list(run)) for _, run in groupby(nodes))
        if self.counts:
            self.delay_s = restart_s
            self.choose_batch()

    def choose_batch(self) -> None:
        """Divide the batch among the GPUs, and measure the goodput of the current epoch."""
        gpus, tables = sum(self.counts), self.tables
        if not self.adapts_batch:
            batch = self.batch
        elif self._model is None:
            batch = max(tables.initial_batch, tables.limits.local_batch_min * gpus)
        else:
            batch = 0
        if batch:
            self.local_batch, self.accumulation_steps = self.divided(batch, gpus)
        elif self._model is not None:
            local, steps = best_division(
                self._model, tables.batch_limits, self._gradients, gpus, spread=len(self.counts) > 1
            )
            self.local_batch = min(local, tables.largest_batch // (gpus * (steps + 1)))
            self.accumulation_steps = steps
        self._stale = False
        self.measure()

    def measure(self) -> None:
        """Compute the goodput of the current epoch, batch and placement."""
        tables = self.tables
        batch = sum(self.counts) * self.local_batch * (self.accumulation_steps + 1)
        scale = batch / tables.initial_batch
        step_s, sync_s = tables.step_s(self.counts, self.local_batch)
        sqr, var = tables.gradients(batch, self.epoch)
        gain = (var + sqr) / (var / scale + sqr)
        total_s = step_s + (step_s - sync_s) * self.accumulation_steps
        self._goodput_rps = gain / total_s * self.speed_ratio
        self._epoch_count = tables.progress_count(self.epoch + 1)

    def _observe(self) -> None:
        """Take what this step measures into the job's own model."""
        gpus = sum(self.counts)
        batch = gpus * self.local_batch * (self.accumulation_steps + 1)
        gradients = self.tables.gradients(batch, self.epoch)
        if gradients != self._gradients:
            self._gradients = gradients
            self._stale = True
            self._goodputs = None
        key = (len(self.counts), gpus, self.local_batch)
        if key not in self._profile:
            self._profile[key] = self.tables.step_s(self.counts, self.local_batch)
            self._model = fit_model(self._profile)
            self._stale = True
            self._goodputs = None

    @property
    def gpus_limit(self) -> int:
        """Return twice the largest number that was measured, within the model's limits."""
        limits = self.tables.limits
        seen = max((gpus for _, gpus, _ in self._profile), default=0)
        largest = self.tables.largest_batch // limits.local_batch_min
        return min(max(2 * seen, 1), GPUS_LIMIT, limits.gpus_max or largest)

    def goodputs(self, gpus: int) -> Floats | None:
        """Return modelled goodputs; see `GoodputJob`."""
        if self._model is None:
            return None
        if self._goodputs is None or self._goodputs.shape[1] <= gpus:
            self._goodputs = goodputs(self._model, self.tables.batch_limits, self._gradients, gpus)
        return self._goodputs[:, : gpus + 1]

    def advance(self, now_s: float, seconds: float) -> None:
        """Run for some seconds, or until completion."""
        gpus = sum(self.counts)
        waited_s = min(self.delay_s, seconds)
        self.delay_s -= waited_s
        used_s = waited_s
        while used_s < seconds and self.end_s is None:
            if self.adapts_batch:
                self._observe()
            remaining_s = seconds - used_s
            if self.progress_count + self._goodput_rps * remaining_s < self._epoch_count:
                self.progress_count += self._goodput_rps * remaining_s
                used_s = seconds
            else:
                self.epoch += 1
                used_s += round((self._epoch_count - self.progress_count) / self._goodput_rps)
                self.progress_count = self._epoch_count
                self._stale = True
                if self.epoch > self.tables.limits.epochs - 1:
                    self.end_s = now_s + used_s
            if self._stale and self.end_s is None:
                self.choose_batch()
        self.executed_s += used_s
        self.service_gpu_s += gpus * used_s
