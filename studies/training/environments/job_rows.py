"""Traces of jobs with durations: their CSV form, and generated ones of the shape of Philly."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.files.csv_table import TableRow, read_table

GPUS_MAX = 1_000_000
COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
_GPU_COUNTS = (1, 2, 4, 8)
_GPU_RATIOS = (0.65, 0.1, 0.15, 0.1)
_DURATION_LOG, _DURATION_SPREAD = 7.0, 1.3  # of the logarithms of seconds: a heavy tail
_DURATION_MAX_S = 50_000.0


class DurationRow(NamedTuple):
    """One job of a trace."""

    name: str
    submit_s: float
    model: str
    gpus: int
    duration_s: float


def read_rows(file: Path, models: Collection[str] | None = None) -> list[DurationRow]:
    """Read the jobs, at least one, in the order of the file.

    Args:
        file: path of the CSV, with times in seconds.
        models: models that may occur; None: any.

    Raises:
        DocumentError: the file cannot be read, or a row is wrong; names file, line and column.
    """
    lines: dict[str, int] = {}
    model_names = sorted(models or ())

    def read(row: TableRow) -> DurationRow:
        name = row.unique("job_id", lines)
        model = (
            row.one_of("model_name", model_names, "model")
            if model_names
            else row.text("model_name")
        )
        return DurationRow(
            name,
            row.number("submit_time"),
            model,
            row.whole("num_gpu", minimum=1, limit=GPUS_MAX),
            row.whole("duration", minimum=1),
        )

    return read_table(file, COLUMNS, read, noun="job")


def generated_rows(
    seed: int, *, models: Sequence[str], jobs: int, gpus: int, load_ratio: float
) -> list[DurationRow]:
    """Return Poisson arrivals of jobs whose durations differ by orders of magnitude.

    Args:
        seed: seed of all random numbers.
        models: models of the jobs, drawn evenly.
        jobs: number of jobs.
        gpus: number of GPUs of the cluster; no job is larger.
        load_ratio: GPU-seconds of all jobs over those of the cluster while jobs arrive.
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    counts = np.minimum(random.choice(_GPU_COUNTS, jobs, p=_GPU_RATIOS), gpus)
    durations_s = np.ceil(
        np.minimum(random.lognormal(_DURATION_LOG, _DURATION_SPREAD, jobs), _DURATION_MAX_S)
    )
    span_s = float(counts @ durations_s) / (gpus * load_ratio)
    gaps = random.exponential(1.0, jobs)
    submits_s = np.round(np.cumsum(gaps) / gaps.sum() * span_s)
    kinds = random.integers(len(models), size=jobs)
    return [
        DurationRow(
            f"job-{number}",
            float(submits_s[number]),
            models[int(kinds[number])],
            int(counts[number]),
            float(durations_s[number]),
        )
        for number in range(jobs)
    ]
