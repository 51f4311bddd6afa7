"""Measured training of models: step time by placement, and statistics of each epoch by batch size.

Step times come from two tables: placements (GPUs per node as a string of digits) and scalability
(numbers of nodes and GPUs). A placement that was not measured is interpolated between points of
(nodes, GPUs, local batch).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from studies.training.goodput import batch_limits
from studies.training.goodput_kernels import Floats, Ints

NODES_MAX = 16  # of the points that are interpolated between


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Lengths and batch sizes of a model's training.

    Attributes:
        epochs: number of epochs until completion.
        local_batch_min, local_batch_max: limits of the batch per GPU and step.
        gpus_max: maximum number of GPUs of models that cannot be distributed; None: no such limit.
    """

    epochs: int
    local_batch_min: int
    local_batch_max: int
    gpus_max: int | None = None


@dataclass(frozen=True, slots=True)
class EpochTable:
    """Measurements of training with one batch size; a row for each epoch.

    Attributes:
        progress: progress at the end of the epoch, in iterations at the initial batch.
        iteration: number of the last iteration of the epoch, at this batch.
        grad_sqr, grad_var: squared norm and variance of the gradient.
    """

    progress: Floats
    iteration: Floats
    grad_sqr: Floats
    grad_var: Floats


@dataclass(frozen=True, slots=True)
class StepTable:
    """Step times of one placement, by ascending local batch."""

    local_batch: Floats
    step_s: Floats
    sync_s: Floats


@dataclass(slots=True)
class TrainingModel:
    """One model: limits, step times and epochs.

    Attributes:
        limits: lengths and batch sizes.
        placements: step times by canonical placement.
        points: rows of (nodes, GPUs, local batch, step s, sync s) of the scalability table.
        epochs: measurements by batch size, ascending.
        initial_batch, largest_batch: smallest and largest measured batch size.
        batch_limits: limits that the goodput model takes.
    """

    name: str
    limits: ModelLimits
    placements: Mapping[tuple[int, ...], StepTable]
    points: Floats
    epochs: Mapping[int, EpochTable]
    initial_batch: int = field(init=False)
    largest_batch: int = field(init=False)
    batch_limits: Ints = field(init=False)
    _epoch_counts: list[float] = field(init=False)
    _interpolators: tuple[LinearNDInterpolator, NearestNDInterpolator] | None = None
    _steps: dict[tuple[tuple[int, ...], int], tuple[float, float]] = field(default_factory=dict)
    _gradients: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute what every round needs."""
        limits = self.limits
        self.initial_batch = min(self.epochs)
        self.largest_batch = max(self.epochs)
        self.batch_limits = batch_limits(
            self.initial_batch, self.largest_batch, limits.local_batch_min, limits.local_batch_max
        )
        ends = np.min([table.progress[: limits.epochs] for table in self.epochs.values()], axis=0)
        self._epoch_counts = [0.0, *ends.tolist()]

    def step_s(self, counts: tuple[int, ...], local_batch: int) -> tuple[float, float]:
        """Return step time and the part of it that synchronises, in seconds.

        Args:
            counts: GPUs per node, in the order of the nodes.
            local_batch: samples per GPU and step.
        """
        key = (counts, local_batch)
        times_s = self._steps.get(key)
        if times_s is None:
            times_s = self._steps[key] = self._interpolated_s(canonical(counts), local_batch)
        return times_s

    def gradients(self, batch: int, epoch: int) -> tuple[float, float]:
        """Return squared norm and variance of the gradient in an epoch, at any batch size."""
        key = (batch, epoch)
        values = self._gradients.get(key)
        if values is None:
            batch = min(max(batch, self.initial_batch), self.largest_batch)
            low = max(size for size in self.epochs if size <= batch)
            high = min(size for size in self.epochs if size >= batch)
            sizes = (float(low), float(high))
            below, above = self.epochs[low], self.epochs[high]
            values = self._gradients[key] = (
                float(np.interp(batch, sizes, (below.grad_sqr[epoch], above.grad_sqr[epoch]))),
                float(np.interp(batch, sizes, (below.grad_var[epoch], above.grad_var[epoch]))),
            )
        return values

    def progress_count(self, epochs: int) -> float:
        """Return the progress after so many epochs: the smallest over all batch sizes."""
        return self._epoch_counts[epochs]

    def iterations_after(self, epoch: int, batch: int) -> float:
        """Return the iterations from the end of an epoch to the end of training, at least 1.

        Between measured batch sizes they are interpolated.
        """
        last = self.limits.epochs - 1
        if epoch >= last:
            return 1.0
        counts = [table.iteration[last] - table.iteration[epoch] for table in self.epochs.values()]
        return float(np.interp(batch, list(self.epochs), counts))

    def _interpolated_s(self, counts: tuple[int, ...], local_batch: int) -> tuple[float, float]:
        table = self.placements.get(counts)
        if table is not None:
            return (
                float(np.interp(local_batch, table.local_batch, table.step_s)),
                float(np.interp(local_batch, table.local_batch, table.sync_s)),
            )
        if self._interpolators is None:
            points = np.concatenate([_means(self.placements), self.points])
            points = points[points[:, 0] <= NODES_MAX]
            where, times_s = points[:, :3], points[:, 3:]
            self._interpolators = (
                LinearNDInterpolator(where, times_s),
                NearestNDInterpolator(where, times_s, rescale=True),
            )
        place = (len(counts), sum(counts), local_batch)
        linear, nearest = self._interpolators
        values = linear(*place)
        if np.isnan(values).any():  # outside the measured points
            values = nearest(*place)
        step, sync = values.ravel().tolist()
        return step, sync


def canonical(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the smallest rotation of the GPUs per node, which has the same ring of GPUs."""
    counts = tuple(count for count in counts if count)
    return min(counts[i:] + counts[:i] for i in range(len(counts)))


def _means(placements: Mapping[tuple[int, ...], StepTable]) -> Floats:
    """Return mean step times by (nodes, GPUs, local batch), in ascending order of these."""
    groups: dict[tuple[int, int, float], list[tuple[float, float]]] = {}
    for counts, table in placements.items():
        for batch, step, sync in zip(table.local_batch, table.step_s, table.sync_s, strict=True):
            key = (len(counts), sum(counts), float(batch))
            groups.setdefault(key, []).append((float(step), float(sync)))
    return np.array([(*key, *np.mean(groups[key], axis=0)) for key in sorted(groups)])
