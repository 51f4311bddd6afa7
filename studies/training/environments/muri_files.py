"""Files of the environment ``muri``, start-up times of its models, and generated jobs."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from scheduler.model.message_text import listed
from workbench.files.csv_table import TableRow, read_table

_COLUMNS = (
    "job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time",
    "resource_time_0", "resource_time_1", "resource_time_2", "priority",
)  # fmt: skip
_STARTUP_GPUS = (1, 2, 4, 8, 16, 32)
_STARTUPS_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
"""Seconds by GPUs, as measured by the authors of Muri."""

_MS_PER_S = 1000.0
_GENERATED_JOBS = 60
_MEAN_GAP_S = 240.0


class MuriRow(NamedTuple):
    """One job of a workload.

    Attributes:
        iteration_s: time of an iteration alone.
        resources_s: parts of that time on storage and CPU, on the GPU, and on the network.
        startup_s: progress that each event costs, in seconds.
        guaranteed: class of the job: true if it is guaranteed.
    """

    name: str
    model: str
    submit_s: float
    gpus: int
    iterations: int
    iteration_s: float
    resources_s: tuple[float, float, float]
    startup_s: float
    guaranteed: bool


def read_workload(file: Path) -> list[MuriRow]:
    """Read the jobs, at least one.

    Raises:
        DocumentError: the file cannot be read, or a row is wrong; names file, line and column.
    """
    lines: dict[str, int] = {}
    models = sorted(_STARTUPS_S)

    def read(row: TableRow) -> MuriRow:
        model = row.one_of("model_name", models, "model")
        gpus = row.whole("num_gpu", minimum=1)
        if gpus not in _STARTUP_GPUS:
            counts = listed([str(count) for count in _STARTUP_GPUS])
            raise row.error("num_gpu", f"'{gpus}' has no start-up time; there are {counts}")
        storage_s, gpu_s, network_s = (
            row.number(f"resource_time_{resource}") / _MS_PER_S for resource in range(3)
        )
        return MuriRow(
            row.unique("job_id", lines),
            model,
            row.number("submit_time") / _MS_PER_S,
            gpus,
            row.whole("iterations", minimum=1),
            row.number("iteration_time") / _MS_PER_S,
            (storage_s, gpu_s, network_s),
            float(_STARTUPS_S[model][_STARTUP_GPUS.index(gpus)]),
            row.whole("priority", limit=1) == 0,
        )

    return read_table(file, _COLUMNS, read, noun="job")


def generated_rows(seed: int) -> list[MuriRow]:
    """Return jobs with Poisson arrivals, each bound by one of the three resources."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    submits_s = np.cumsum(random.exponential(_MEAN_GAP_S, _GENERATED_JOBS)).round()
    iterations = np.ceil(random.lognormal(8.5, 1.0, _GENERATED_JOBS))
    gpus = random.choice([1, 2, 4, 8], _GENERATED_JOBS, p=[0.5, 0.2, 0.2, 0.1])
    bounds = random.integers(0, 3, _GENERATED_JOBS)
    guaranteed = random.integers(0, 2, _GENERATED_JOBS)
    rows = []
    for number in range(_GENERATED_JOBS):
        storage_s, gpu_s, network_s = np.roll([0.5, 0.1, 0.05], bounds[number]).tolist()
        rows.append(
            MuriRow(
                f"job-{number}",
                ("storage-bound", "GPU-bound", "network-bound")[bounds[number]],
                float(submits_s[number]),
                int(gpus[number]),
                int(iterations[number]),
                storage_s + gpu_s + network_s,
                (storage_s, gpu_s, network_s),
                5.0,
                bool(guaranteed[number]),
            )
        )
    return rows
