"""Files of the environment ``gavel``, and generated jobs."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scheduler.model.message_text import listed, quoted
from studies.training.environments.gavel_throughputs import (
    THROUGHPUTS_FILE,
    JobKind,
    Throughputs,
    read_throughputs,
)
from studies.training.errors import JobsError
from workbench.files.csv_table import TableRow, file_error, headless_rows

_COLUMNS = (
    "type", "command", "directory", "argument", "data", "steps", "GPUs", "weight", "SLO", "arrival",
)  # fmt: skip
_GENERATED_JOBS = 60
_MEAN_GAP_S = 300.0
_GENERATED_RPS = {"small": 20.0, "medium": 8.0, "large": 2.0}  # on one GPU, alone
_PACKED_RATIO = {"small": 0.8, "medium": 0.65, "large": 0.45}  # next to any other job
_SCALING_EXPONENT = 0.9  # of throughput by GPUs


class StepsRow(NamedTuple):
    """Request of one job of a known number of steps."""

    name: str
    model: str
    submit_s: float
    gpus: int
    steps: int
    weight_ratio: float


class GavelRow(NamedTuple):
    """One job of a workload."""

    job: StepsRow
    throughputs: Throughputs


def read_workload(file: Path, data: Path | None, gpu_model: str) -> list[GavelRow]:
    """Read the jobs, at least one, and the throughputs of their types; jobs are named by line.

    Raises:
        DocumentError: a file is missing or wrong; names file, line and column.
        JobsError: there is no folder with throughputs, or no such GPU model in it.
    """
    if data is None:
        raise JobsError(f"{file}: its jobs need throughputs; name a folder with --data")
    tables = read_throughputs(data / THROUGHPUTS_FILE)
    if gpu_model not in tables:
        raise JobsError(f"--set gpu_model={gpu_model}: there are {listed(sorted(tables))}")
    rows = []
    with closing(headless_rows(file, _COLUMNS, "\t")) as table:
        for number, row in enumerate(table):
            kind = (row.text("type"), row.whole("GPUs", minimum=1))
            throughputs = tables[gpu_model].get(kind)
            if throughputs is None or not throughputs.alone_rps:
                message = f"{quoted(kind[0])} on {kind[1]} GPUs has no throughput on {gpu_model}"
                raise row.error("type", message)
            rows.append(GavelRow(steps_row(row, number, kind[0]), throughputs))
    if not rows:
        raise file_error(file, "has no job")
    return rows


def steps_row(row: TableRow, number: int, model: str) -> StepsRow:
    """Return what a row of a trace of Gavel's form says of any job; it is named by its number.

    Raises:
        DocumentError: a cell is wrong; names file, line and column.
    """
    weight_ratio = row.number("weight")
    if not weight_ratio:
        raise row.error("weight", "is 0; a job needs a weight above 0")
    return StepsRow(
        name=str(number),
        model=model,
        submit_s=row.number("arrival"),
        gpus=row.whole("GPUs", minimum=1),
        steps=row.whole("steps", minimum=1),
        weight_ratio=weight_ratio,
    )


def generated_rows(seed: int) -> list[GavelRow]:
    """Return jobs with Poisson arrivals of three made-up types, of which small ones pack well."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    models = random.choice(list(_GENERATED_RPS), _GENERATED_JOBS)
    submits_s = np.cumsum(random.exponential(_MEAN_GAP_S, _GENERATED_JOBS)).round()
    durations_s = np.ceil(random.lognormal(7.5, 1.0, _GENERATED_JOBS))
    gpus = random.choice([1, 2, 4], _GENERATED_JOBS, p=[0.7, 0.2, 0.1])
    kinds = _generated_throughputs()
    rows = []
    for number in range(_GENERATED_JOBS):
        kind = (str(models[number]), int(gpus[number]))
        steps = int(np.ceil(durations_s[number] * kinds[kind].alone_rps))
        submit_s = float(submits_s[number])
        job = StepsRow(f"job-{number}", kind[0], submit_s, kind[1], steps, 1.0)
        rows.append(GavelRow(job, kinds[kind]))
    return rows


def _generated_throughputs() -> Mapping[JobKind, Throughputs]:
    alone_rps = {
        (model, gpus): rps * gpus**_SCALING_EXPONENT
        for model, rps in _GENERATED_RPS.items()
        for gpus in (1, 2, 4)
    }
    return {
        kind: Throughputs(
            rps,
            {
                neighbour: (rps * _PACKED_RATIO[neighbour[0]], near_rps * _PACKED_RATIO[kind[0]])
                for neighbour, near_rps in alone_rps.items()
                if neighbour[1] == kind[1]
            },
        )
        for kind, rps in alone_rps.items()
    }
