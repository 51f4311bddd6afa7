"""Traces of the environment ``shockwave``, throughputs that follow from them, made-up jobs."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scheduler.model.message_text import listed, quoted
from studies.training.environments.gavel_files import StepsRow, steps_row
from workbench.files.csv_table import TableRow, file_error, headless_rows

_COLUMNS = (
    "type", "command", "directory", "argument", "data", "steps", "GPUs", "mode", "weight", "SLO",
    "duration", "arrival",
)  # fmt: skip
_TYPE = re.compile(r"(?P<model>[\w-]+) \(batch size (?P<batch>[1-9]\d{0,5})\)")
MODES = ("static", "accordion", "gns")


class TrainedModel(NamedTuple):
    """Size of a model's data set, and its largest batch."""

    samples: int
    batch_max: int


MODELS = {
    "ResNet-18": TrainedModel(50_000, 256),
    "ResNet-50": TrainedModel(100_000, 128),
    "Transformer": TrainedModel(10_000, 128),
    "LM": TrainedModel(59_675, 80),
    "Recommendation": TrainedModel(117_907, 8192),
}
_GENERATED_JOBS = 120
_MEAN_GAP_S = 10.0
_GENERATED_SAMPLES_RPS = 1500.0  # on one GPU at the smallest batch
_BATCH_EXPONENT = 0.3  # of samples per second by batch
_GPU_EXPONENT = 0.8


class ShockwaveRow(NamedTuple):
    """One job of a workload.

    Attributes:
        batch: initial batch.
        duration_s: duration of all steps at that batch.
        mode: rule by which the batch changes.
    """

    job: StepsRow
    batch: int
    duration_s: float
    mode: str


def read_workload(file: Path) -> list[ShockwaveRow]:
    """Read the jobs, at least one, named by line.

    Raises:
        DocumentError: the file cannot be read, or a row is wrong; names file, line and column.
    """
    with closing(headless_rows(file, _COLUMNS, "\t")) as table:
        rows = [_row(number, row) for number, row in enumerate(table)]
    if not rows:
        raise file_error(file, "has no job")
    return rows


def _row(number: int, row: TableRow) -> ShockwaveRow:
    text = row.text("type")
    match = _TYPE.fullmatch(text)
    if match is None or match["model"] not in MODELS:
        names = listed(sorted(MODELS))
        message = f"{quoted(text)} is no model with '(batch size N)'; there are {names}"
        raise row.error("type", message)
    return ShockwaveRow(
        steps_row(row, number, match["model"]),
        int(match["batch"]),
        float(row.whole("duration", minimum=1)),
        row.one_of("mode", MODES, "mode"),
    )


def throughputs_rps(rows: Sequence[ShockwaveRow]) -> Mapping[tuple[str, int], Mapping[int, float]]:
    """Return steps per second by model and GPUs, then by batch, of the jobs of a trace."""
    throughputs: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for row in rows:
        throughputs[row.job.model, row.job.gpus][row.batch] = row.job.steps / row.duration_s
    return throughputs


def step_rps(batches_rps: Mapping[int, float], batch: int) -> float:
    """Return steps per second at a batch.

    A batch that no job starts with has the samples per second of the next smaller one.
    """
    nearest = max((size for size in batches_rps if size <= batch), default=min(batches_rps))
    return batches_rps[nearest] * nearest / batch


def generated_rows(seed: int) -> list[ShockwaveRow]:
    """Return jobs with Poisson arrivals of all models and modes."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    names = list(MODELS)
    models = random.choice(names, _GENERATED_JOBS)
    modes = random.choice(MODES, _GENERATED_JOBS)
    submits_s = np.cumsum(random.exponential(_MEAN_GAP_S, _GENERATED_JOBS)).round()
    epochs = random.integers(10, 100, _GENERATED_JOBS)
    gpus = random.choice([1, 2, 4], _GENERATED_JOBS, p=[0.7, 0.2, 0.1])
    rows = []
    for number in range(_GENERATED_JOBS):
        model = str(models[number])
        samples, batch_max = MODELS[model]
        batch = batch_max // int(2 ** random.integers(0, 4))
        steps = int(epochs[number]) * ceil(samples / batch)
        samples_rps = _GENERATED_SAMPLES_RPS * (16 * batch / batch_max) ** _BATCH_EXPONENT
        duration_s = steps * batch / (samples_rps * float(gpus[number]) ** _GPU_EXPONENT)
        submit_s = float(submits_s[number])
        job = StepsRow(f"job-{number}", model, submit_s, int(gpus[number]), steps, 1.0)
        rows.append(ShockwaveRow(job, batch, duration_s, str(modes[number])))
    return rows
