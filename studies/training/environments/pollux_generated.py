"""Generated models and workload of the environment ``pollux``: made up by formula, not measured."""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from studies.training.environments.pollux_files import WorkloadRow
from studies.training.environments.pollux_models import (
    EpochTable,
    ModelLimits,
    StepTable,
    TrainingModel,
)

JOBS = 24
MEAN_GAP_S = 120.0
_NODES, _GPUS = 16, 4  # of the largest measured placement


class _Shape(NamedTuple):
    limits: ModelLimits
    batches: tuple[int, int]  # initial and largest
    iterations: int  # of an epoch
    step_s: float
    sample_s: float
    sync_s: float


_SHAPES = {
    "generated-small": _Shape(ModelLimits(8, 32, 512), (64, 1024), 300, 0.02, 0.0002, 0.01),
    "generated-medium": _Shape(ModelLimits(12, 16, 128), (64, 2048), 400, 0.04, 0.001, 0.03),
    "generated-large": _Shape(ModelLimits(6, 8, 64), (128, 4096), 900, 0.06, 0.004, 0.08),
}
_REQUESTS = {
    "generated-small": (1, 256),
    "generated-medium": (4, 512),
    "generated-large": (8, 1024),
}


def generated_models() -> dict[str, TrainingModel]:
    """Return a small, a medium and a large model."""
    return {name: _model(name) for name in _SHAPES}


def generated_rows(seed: int) -> list[WorkloadRow]:
    """Return jobs with Poisson arrivals; large ones are rarer than small ones."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    names = list(_REQUESTS)
    rows = []
    submit_s = 0
    for number in range(JOBS):
        submit_s += round(random.exponential(MEAN_GAP_S))
        name = names[int(random.choice(len(names), p=(0.5, 0.3, 0.2)))]
        gpus, batch = _REQUESTS[name]
        rows.append(WorkloadRow(f"{name}-{number}", float(submit_s), name, gpus, batch))
    return rows


@cache  # runs of a process share what a model computes once
def _model(name: str) -> TrainingModel:
    shape = _SHAPES[name]
    limits = shape.limits
    smallest, largest = shape.batches
    sizes = [smallest * 2**k for k in range((largest // smallest).bit_length())]
    local = np.geomspace(limits.local_batch_min, limits.local_batch_max, 5).round()

    def sync_time_s(nodes: int, gpus: int) -> float:
        network = 1.0 + 0.05 * (nodes - 2) if nodes > 1 else 0.3
        return shape.sync_s * network if gpus > 1 else 0.0

    def table(nodes: int, gpus: int) -> StepTable:
        sync = np.full(len(local), sync_time_s(nodes, gpus))
        return StepTable(local, shape.step_s + shape.sample_s * local + sync, sync)

    placements = {
        (share,) * nodes: table(nodes, share * nodes)
        for nodes, share in product((1, 2, 4), range(1, _GPUS + 1))
    }
    points = [
        (nodes, gpus, *row)
        for nodes in range(1, _NODES + 1)
        for gpus in (nodes, _GPUS * nodes)
        for row in zip(*_columns(table(nodes, gpus)), strict=True)
    ]
    return TrainingModel(
        name,
        limits,
        placements,
        np.array(points),
        {b: _epochs(b, smallest, shape.iterations, limits) for b in sizes},
    )


def _columns(table: StepTable) -> tuple[list[float], list[float], list[float]]:
    return table.local_batch.tolist(), table.step_s.tolist(), table.sync_s.tolist()


def _epochs(batch: int, initial: int, iterations: int, limits: ModelLimits) -> EpochTable:
    """Let the noise of gradients grow from epoch to epoch, as in measured training."""
    number = np.arange(1, limits.epochs + 1, dtype=np.float64)
    noise = 2.0 * number
    progress = iterations * number
    gain = (noise + 1) / (noise * initial / batch + 1)
    return EpochTable(progress, np.ceil(progress / gain), np.ones(limits.epochs), noise)
