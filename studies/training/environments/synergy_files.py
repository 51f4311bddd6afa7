"""Files of the environment ``synergy``, and generated jobs."""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from studies.training.errors import JobsError
from workbench.files.csv_table import file_error, headless_rows
from workbench.files.json_file import read_json

PROFILES_FILE = Path("training/synergy/model-profiles.json")
_COLUMNS = ("id", "model", "arrival", "iterations", "gpus")
_GPUS_MAX = 1_000_000
_GENERATED_JOBS = 60
_MEAN_GAP_S = 120.0
_ONE_GPU = "_1"  # ending of a profile of one GPU, which the public simulator uses for any number


class DemandProfile(BaseModel):
    """CPUs and memory for each GPU, and the speed with and without it."""

    model_config = ConfigDict(allow_inf_nan=False)

    cpus: int = Field(alias="cpu_demand", ge=1)
    memory_gib: float = Field(alias="mem_gb_demand", gt=0)
    iteration_s: float = Field(alias="iteration_time_s", gt=0)
    speed_ratio: float = Field(alias="speedup", ge=1)


class SynergyRow(NamedTuple):
    """One job of a workload."""

    name: str
    model: str
    submit_s: float
    iterations: int
    gpus: int
    profile: DemandProfile


_GENERATED = {  # made up: models that read images need CPUs, language models do not
    "image": {"cpu_demand": 9, "mem_gb_demand": 80, "iteration_time_s": 0.5, "speedup": 2.2},
    "speech": {"cpu_demand": 5, "mem_gb_demand": 100, "iteration_time_s": 0.7, "speedup": 1.3},
    "language": {"cpu_demand": 1, "mem_gb_demand": 20, "iteration_time_s": 0.2, "speedup": 1},
}
_PROFILES = TypeAdapter(dict[str, DemandProfile])


def read_workload(file: Path, data: Path | None) -> list[SynergyRow]:
    """Read the jobs, at least one, and the profiles of their models.

    Raises:
        DocumentError: a file is missing or wrong; names file, line and column.
        JobsError: there is no folder with profiles.
    """
    if data is None:
        raise JobsError(f"{file}: its models need profiles; name a folder with --data")
    profiles = read_profiles(data / PROFILES_FILE)
    model_names = sorted(profiles)
    rows: list[SynergyRow] = []
    with closing(headless_rows(file, _COLUMNS)) as table:
        names: dict[str, int] = {}
        for row in table:
            name = row.unique("id", names)
            model = row.one_of("model", model_names, "model")
            rows.append(
                SynergyRow(
                    name,
                    model,
                    row.number("arrival"),
                    row.whole("iterations", minimum=1),
                    row.whole("gpus", minimum=1, limit=_GPUS_MAX),
                    profiles[model],
                )
            )
    if not rows:
        raise file_error(file, "has no job")
    return rows


def generated_rows(seed: int) -> list[SynergyRow]:
    """Return jobs with Poisson arrivals of three made-up models."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    models = random.choice(list(_GENERATED), _GENERATED_JOBS)
    submits_s = np.cumsum(random.exponential(_MEAN_GAP_S, _GENERATED_JOBS)).round()
    iterations = np.ceil(random.lognormal(9.0, 0.8, _GENERATED_JOBS))
    gpus = random.choice([1, 2, 4], _GENERATED_JOBS, p=[0.7, 0.2, 0.1])
    profiles = _PROFILES.validate_python(_GENERATED)
    return [
        SynergyRow(
            f"job-{number}",
            str(models[number]),
            float(submits_s[number]),
            int(iterations[number]),
            int(gpus[number]),
            profiles[str(models[number])],
        )
        for number in range(_GENERATED_JOBS)
    ]


def read_profiles(file: Path) -> dict[str, DemandProfile]:
    """Read the profile of each model.

    Raises:
        DocumentError: the file is missing or wrong.
    """
    return {
        name.removesuffix(_ONE_GPU): profile
        for name, profile in read_json(file, _PROFILES).items()
        if name.endswith(_ONE_GPU)
    }
