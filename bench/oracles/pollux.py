"""Oracles of the environment ``pollux``: results published with Pollux (OSDI 2021)."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.oracles.oracle import Comparison, Oracle, exact
from workbench.jobs.engine import simulate_jobs
from workbench.jobs.result import JobsResult
from workbench.jobs.runs.setup import JobsSetup, load

WORKLOADS = range(1, 9)
_MEANS_S: Mapping[str, tuple[float, ...]] = {
    "tiresias": (
        2473.65, 5144.9625, 3876.25625, 3280.2625, 3501.0125, 3469.69375, 5479.9125, 5079.70625,
    ),
    "optimus": (
        4087.0625, 6913.875, 3944.00625, 5967.75, 5656.25, 5301.875, 7290.85625, 6293.79375,
    ),
}  # fmt: skip
_LOAD_MEANS_S = {
    "tiresias": {"0.5": 2091.4922, "1.5": 6182.35, "2.0": 10039.5172},
    "optimus": {"0.5": 2395.3641, "1.5": 7234.6135, "2.0": 9721.0395},
}


def workload_file(data: Path, number: int, job_load: str = "1.0") -> Path:
    """Return a workload of a relative job load."""
    if job_load == "1.0":
        return data / "traces" / "pollux" / f"workload-{number}.csv"
    return data / "training" / "pollux" / f"workloads-{job_load}" / f"workload-{number}.csv"


@cache
def run(
    data: Path, policy: str, number: int, job_load: str = "1.0", settings: tuple[Any, ...] = ()
) -> JobsResult:
    """Run a workload on 16 nodes of 4 GPUs."""
    setup = JobsSetup(
        policy=policy,
        environment="pollux",
        workload=workload_file(data, number, job_load),
        data=data,
        nodes=16,
        gpus=4,
        settings=dict(settings),
    )
    environment, decider = load(setup)
    return simulate_jobs(environment, decider, policy)


def published_jcts_s(
    data: Path, policy: str, number: int, job_load: str = "1.0"
) -> dict[str, float]:
    """Return the published completion time of each job."""
    file = data / "training" / "pollux" / "results" / f"results-jobload-{policy}-{job_load}.json"
    jcts_s: dict[str, float] = json.loads(file.read_text("utf-8"))["jcts"][f"workload-{number}"]
    return jcts_s


def different_jobs(data: Path, policy: str, number: int, job_load: str = "1.0") -> int:
    """Count the jobs whose completion time is not the published one."""
    expected_s = published_jcts_s(data, policy, number, job_load)
    result = run(data, policy, number, job_load)
    return sum(job.jct_s != expected_s.get(job.name) for job in result.jobs) + abs(
        len(result.jobs) - len(expected_s)
    )


def _per_job(data: Path, policy: str, number: int, job_load: str = "1.0") -> Comparison:
    jobs = len(run(data, policy, number, job_load).jobs)
    different = different_jobs(data, policy, number, job_load)
    text = f"{policy} workload {number}: {jobs - different} of {jobs} jobs equal the published"
    return Comparison(text, not different)


def _workload(policy: str, number: int, data: Path) -> Iterator[Comparison]:
    mean_s = run(data, policy, number).mean_jct_s
    yield exact(f"{policy} workload {number}", mean_s, _MEANS_S[policy][number - 1])
    yield _per_job(data, policy, number)


def _workloads(policy: str, data: Path) -> Iterator[Comparison]:
    for number in WORKLOADS:
        yield from _workload(policy, number, data)
    means_s = [run(data, policy, number).mean_jct_s for number in WORKLOADS]
    yield exact(f"{policy} mean of 8", fmean(means_s), fmean(_MEANS_S[policy]))


def _job_loads(policy: str, data: Path) -> Iterator[Comparison]:
    for job_load, expected_s in _LOAD_MEANS_S[policy].items():
        results = [run(data, policy, number, job_load) for number in WORKLOADS]
        mean_s = fmean(result.mean_jct_s for result in results)
        yield exact(f"{policy} at load {job_load}, mean of 8", mean_s, expected_s, digits=4)


ORACLES = (
    Oracle(1, "Tiresias, workload 6", lambda data: _workload("tiresias", 6, data)),
    Oracle(2, "Tiresias, workloads 1 to 8", lambda data: _workloads("tiresias", data)),
    Oracle(3, "Tiresias by job load", lambda data: _job_loads("tiresias", data)),
    Oracle(4, "Optimus, workload 6", lambda data: _workload("optimus", 6, data)),
    Oracle(5, "Optimus, workloads 1 to 8", lambda data: _workloads("optimus", data)),
    Oracle(6, "Optimus by job load", lambda data: _job_loads("optimus", data)),
    Oracle(7, "Pollux, workloads 1 to 8"),
    Oracle(8, "Pollux by job load"),
    Oracle(9, "Pollux by interval"),
    Oracle(10, "Pollux with interference"),
    Oracle(11, "Order of Pollux, Tiresias, Optimus"),
)
