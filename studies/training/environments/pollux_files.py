"""Files of the environment ``pollux``: workloads, and the tables of the models."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scheduler.model.message_text import quoted
from studies.training.environments.pollux_models import (
    EpochTable,
    ModelLimits,
    StepTable,
    TrainingModel,
)
from workbench.files.csv_table import TableRow, file_error, read_table, table_rows

STEP_FOLDER = Path("traces/pollux")
EPOCH_FOLDER = Path("training/pollux/traces")
LIMITS = {
    "bert": ModelLimits(2, 4, 12),
    "cifar10": ModelLimits(100, 32, 1024),
    "ncf": ModelLimits(10, 32, 32768, gpus_max=1),
    "imagenet": ModelLimits(90, 20, 200),
    "deepspeech2": ModelLimits(80, 10, 80),
    "yolov3": ModelLimits(50, 4, 8),
}
"""Limits of the six measured models, which their files do not contain."""

_GPUS_MAX = 1_000_000


class WorkloadRow(NamedTuple):
    """One job of a workload."""

    name: str
    submit_s: float
    model: str
    gpus: int
    batch: int


def read_workload(file: Path, models: Sequence[str]) -> list[WorkloadRow]:
    """Read the jobs, at least one, in the order of the file.

    Raises:
        DocumentError: the file cannot be read, or a row is wrong; names file, line and column.
    """
    lines: dict[str, int] = {}
    model_names = sorted(models)
    columns = ("name", "time", "application", "num_replicas", "batch_size")

    def read(row: TableRow) -> WorkloadRow:
        return WorkloadRow(
            row.unique("name", lines),
            row.number("time"),
            row.one_of("application", model_names, "model"),
            row.whole("num_replicas", minimum=1, limit=_GPUS_MAX),
            row.whole("batch_size", minimum=1),
        )

    return read_table(file, columns, read, noun="job")


def read_model(data: Path, name: str) -> TrainingModel:
    """Read the tables of a measured model.

    Raises:
        DocumentError: a file is missing, or a row is wrong.
    """
    limits = LIMITS[name]
    epochs = {}
    folder = data / EPOCH_FOLDER
    for file in folder.glob(f"{name}-validation-*.csv"):
        size = file.stem.rpartition("-")[2]
        if not size.isdecimal():
            raise file_error(file, "does not end with a batch size")
        epochs[int(size)] = _read_epochs(file, limits.epochs)
    if not epochs:
        raise file_error(folder, f"has no {name}-validation-….csv; name its parent with --data")
    steps = data / STEP_FOLDER
    return TrainingModel(
        name,
        limits,
        _read_placements(steps / f"{name}-placements.csv"),
        _read_points(steps / f"{name}-scalability.csv"),
        dict(sorted(epochs.items())),
    )


def _read_epochs(file: Path, epochs: int) -> EpochTable:
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    values = read_table(file, columns, lambda row: [row.number(column) for column in columns])
    if len(values) < epochs:
        raise file_error(file, f"has {len(values)} epochs and needs {epochs}")
    return EpochTable(*np.array(values).T)


def _read_placements(file: Path) -> dict[tuple[int, ...], StepTable]:
    groups: dict[tuple[int, ...], list[tuple[float, float, float]]] = {}
    with closing(table_rows(file, ("placement", "local_bsz", "step_time", "sync_time"))) as table:
        for row in table:
            digits = row.text("placement")
            if not (digits.isascii() and digits.isdigit()) or "0" in digits:
                raise row.error("placement", f"{quoted(digits)} is no string of digits 1 to 9")
            groups.setdefault(tuple(map(int, digits)), []).append(_times(row))
    return {counts: StepTable(*np.array(sorted(times)).T) for counts, times in groups.items()}


def _read_points(file: Path) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")

    def read(row: TableRow) -> tuple[float, ...]:
        nodes, replicas = row.whole("num_nodes", minimum=1), row.whole("num_replicas", minimum=1)
        return (nodes, replicas, *_times(row))

    points = read_table(file, columns, read)
    return np.array(points, dtype=np.float64).reshape(-1, len(columns))


def _times(row: TableRow) -> tuple[float, float, float]:
    return row.number("local_bsz"), row.number("step_time"), row.number("sync_time")
