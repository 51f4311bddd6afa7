"""Traces with deadlines, and speeds by number of nodes: files of Chronus, and generated ones."""

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, TypeAdapter

from scheduler.model.message_text import quoted
from studies.training.environments.job_rows import GPUS_MAX, DurationRow, generated_rows
from studies.training.job import Deadline
from workbench.files.csv_table import TableRow, read_table
from workbench.files.json_file import read_json

SPREAD_FILE = Path("training/chronus/model_info.json")
COLUMNS = (
    "job_id", "num_gpu", "submit_time", "model_name", "duration",
    "expect_time_list", "expect_value_list", "job_type",
)  # fmt: skip
_LIST_SEPARATOR = "-"
_S_PER_MIN = 60.0
_BEST_EFFORT_RATIO = 0.3  # of generated jobs
_DEADLINE_RATIOS = (1.1, 3.5)  # of the duration, as in the published traces

SpreadTable = Mapping[str, Mapping[int, Mapping[int, float]]]
"""Relative speed by model, number of GPUs, and number of nodes."""

_Speed = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_SPREAD = TypeAdapter(dict[str, dict[int, dict[int, _Speed]]])


class DeadlineRow(NamedTuple):
    """One job of a trace; without a deadline it is best effort."""

    job: DurationRow
    deadlines: tuple[Deadline, ...]


def read_deadline_rows(file: Path, models: Collection[str]) -> list[DeadlineRow]:
    """Read the jobs, at least one, in the order of the file; its minutes become seconds.

    Raises:
        DocumentError: the file cannot be read, or a row is wrong; names file, line and column.
    """
    lines: dict[str, int] = {}
    model_names = sorted(models)

    def read(row: TableRow) -> DeadlineRow:
        name = row.unique("job_id", lines)
        model = row.one_of("model_name", model_names, "model")
        job = DurationRow(
            name,
            row.number("submit_time") * _S_PER_MIN,
            model,
            # Some published jobs request none; policies round up to a power of two: to 1.
            max(row.whole("num_gpu", limit=GPUS_MAX), 1),
            row.whole("duration", minimum=1) * _S_PER_MIN,
        )
        return DeadlineRow(job, _deadlines(row, job.submit_s))

    return read_table(file, COLUMNS, read, noun="job")


def _deadlines(row: TableRow, submit_s: float) -> tuple[Deadline, ...]:
    kind = row.text("job_type")
    if kind == "best":
        return ()
    if kind != "strict":
        raise row.error("job_type", f"{quoted(kind)} is neither strict nor best")
    times_min = _numbers(row, "expect_time_list")
    values = _numbers(row, "expect_value_list")
    if len(times_min) != len(values):
        raise row.error("expect_value_list", f"has {len(values)} values, not {len(times_min)}")
    pairs = zip(times_min, values, strict=True)
    return tuple(sorted(Deadline(submit_s + time * _S_PER_MIN, value) for time, value in pairs))


def _numbers(row: TableRow, column: str) -> list[float]:
    parts = row.text(column).split(_LIST_SEPARATOR)
    if not all(part.isascii() and part.isdigit() for part in parts):
        text = quoted(row.text(column))
        message = f"{text} is no list of whole numbers, separated by {_LIST_SEPARATOR!r}"
        raise row.error(column, message)
    return [float(part) for part in parts]


def read_spread(data: Path) -> SpreadTable:
    """Return the measured speeds.

    Raises:
        DocumentError: the file is missing, or an entry is wrong.
    """
    return read_json(data / SPREAD_FILE, _SPREAD)


def speeds_of(
    table: Mapping[int, Mapping[int, float]], gpus: int, node_gpus: int
) -> dict[int, float]:
    """Return the speeds of a job by number of nodes.

    A job larger than a node has speed 1 on the fewest nodes that hold it, and loses in proportion
    to its further nodes as a job of the size of a node does.
    """
    fewest = ceil(gpus / node_gpus)
    measured = [count for count in table if count <= max(gpus, 1)]
    if gpus == 1 or not measured:
        return {fewest: 1.0}
    row = table[gpus] if gpus in table else table[max(measured)]
    return {fewest: 1.0} | {
        fewest * nodes: speed for nodes, speed in sorted(row.items()) if nodes > 1
    }


def generated_spread() -> dict[str, dict[int, dict[int, float]]]:
    """Return a model that loses little and one that loses much, by formula."""
    return {
        name: {
            gpus: {1 << k: 1.0 - loss_ratio * k for k in range(3) if 1 << k <= gpus}
            for gpus in (1, 2, 4, 8)
        }
        for name, loss_ratio in (("generated-compute", 0.02), ("generated-network", 0.3))
    }


def generated_deadline_rows(
    seed: int, *, models: Sequence[str], jobs: int, gpus: int, load_ratio: float
) -> list[DeadlineRow]:
    """Return jobs of `generated_rows`, most of them with a deadline."""
    rows = generated_rows(seed, models=models, jobs=jobs, gpus=gpus, load_ratio=load_ratio)
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
    ratios = random.uniform(*_DEADLINE_RATIOS, len(rows))
    strict = random.random(len(rows)) >= _BEST_EFFORT_RATIO
    return [
        DeadlineRow(row, (Deadline(row.submit_s + ratio * row.duration_s),) if needs else ())
        for row, ratio, needs in zip(rows, ratios.tolist(), strict.tolist(), strict=True)
    ]
