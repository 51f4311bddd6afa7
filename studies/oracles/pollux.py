"""Oracles of the environment ``pollux``: results published with Pollux (OSDI 2021)."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.oracles.oracle import (
    PublishedComparison,
    PublishedFigure,
    equal_count,
    exact,
    near,
    order,
)
from studies.training.engine import simulate_jobs
from studies.training.result import JobsResult
from studies.training.runs.setup import JobsSetup, load

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


_POLICIES = ("tiresias", "optimus", "pollux")
_TOLERANCE_RATIO = 0.05  # Pollux' own margin for its random search
_INTERFERENCE_TOLERANCE_RATIO = 0.07
_POLLUX_WORKLOAD_6_S = 2446.13125
_POLLUX_MEAN_S = 2751.1336
_POLLUX_LOADS_S = {"0.5": 1533.98, "1.5": 3685.41, "2.0": 5289.20}
_POLLUX_INTERVALS_S = {30: 2729, 60: 2751, 120: 2806, 240: 2969, 480: 3354}
_POLLUX_INTERFERENCE_S = {0.0: 2758, 0.25: 3177, 0.5: 3903}


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


def _per_job(data: Path, policy: str, number: int) -> PublishedComparison:
    count = len(run(data, policy, number).jobs)
    different = different_jobs(data, policy, number)
    return equal_count(f"{policy} workload {number}, jobs as published", count - different, count)


def _workload(policy: str, number: int, data: Path) -> Iterator[PublishedComparison]:
    mean_s = run(data, policy, number).mean_jct_s
    yield exact(f"{policy} workload {number}", mean_s, _MEANS_S[policy][number - 1])
    yield _per_job(data, policy, number)


def _workloads(policy: str, data: Path) -> Iterator[PublishedComparison]:
    for number in WORKLOADS:
        yield from _workload(policy, number, data)
    means_s = [run(data, policy, number).mean_jct_s for number in WORKLOADS]
    yield exact(f"{policy} mean of 8", fmean(means_s), fmean(_MEANS_S[policy]))


def _job_loads(policy: str, data: Path) -> Iterator[PublishedComparison]:
    for job_load, expected_s in _LOAD_MEANS_S[policy].items():
        results = [run(data, policy, number, job_load) for number in WORKLOADS]
        mean_s = fmean(result.mean_jct_s for result in results)
        yield exact(f"{policy} at load {job_load}, mean of 8", mean_s, expected_s, digits=4)


def _mean_s(
    data: Path, policy: str, job_load: str = "1.0", settings: tuple[Any, ...] = ()
) -> float:
    return fmean(run(data, policy, n, job_load, settings).mean_jct_s for n in WORKLOADS)


def _pollux_workloads(data: Path) -> Iterator[PublishedComparison]:
    workload_s = run(data, "pollux", 6).mean_jct_s
    yield near("pollux workload 6", workload_s, _POLLUX_WORKLOAD_6_S, _TOLERANCE_RATIO)
    yield near("pollux mean of 8", _mean_s(data, "pollux"), _POLLUX_MEAN_S, _TOLERANCE_RATIO)


def _pollux_loads(data: Path) -> Iterator[PublishedComparison]:
    for job_load, expected_s in _POLLUX_LOADS_S.items():
        mean_s = _mean_s(data, "pollux", job_load)
        yield near(f"pollux at load {job_load}, mean of 8", mean_s, expected_s, _TOLERANCE_RATIO)


def _pollux_intervals(data: Path) -> Iterator[PublishedComparison]:
    means_s = []
    for interval_s, expected_s in _POLLUX_INTERVALS_S.items():
        means_s.append(_mean_s(data, "pollux", settings=(("interval_s", interval_s),)))
        what = f"pollux every {interval_s} s, mean of 8"
        yield near(what, means_s[-1], expected_s, _TOLERANCE_RATIO)
    yield order("pollux by interval", [f"{i} s" for i in _POLLUX_INTERVALS_S], means_s)


def _pollux_interference(data: Path) -> Iterator[PublishedComparison]:
    means_s = []
    for ratio, expected_s in _POLLUX_INTERFERENCE_S.items():
        settings = (("apart", False), ("interference_ratio", ratio))
        means_s.append(_mean_s(data, "pollux", settings=settings))
        what = f"pollux, interference {100 * ratio:g} %, nodes shared, mean of 8"
        yield near(what, means_s[-1], expected_s, _INTERFERENCE_TOLERANCE_RATIO)
    names = [f"{100 * ratio:g} %" for ratio in _POLLUX_INTERFERENCE_S]
    yield order("pollux by interference", names, means_s)


def _policy_order(data: Path) -> Iterator[PublishedComparison]:
    for number in WORKLOADS:
        means_s = {name: run(data, name, number).mean_jct_s for name in _POLICIES}
        for name in ("tiresias", "optimus"):
            values_s = [means_s["pollux"], means_s[name]]
            yield order(f"workload {number}", ["pollux", name], values_s)
    for job_load, names in (("1.0", ["tiresias", "optimus"]), ("2.0", ["optimus", "tiresias"])):
        yield order(f"load {job_load}", names, [_mean_s(data, n, job_load) for n in names])


ORACLES = (
    PublishedFigure(1, "Tiresias, workload 6", lambda data: _workload("tiresias", 6, data)),
    PublishedFigure(2, "Tiresias, workloads 1 to 8", lambda data: _workloads("tiresias", data)),
    PublishedFigure(3, "Tiresias by job load", lambda data: _job_loads("tiresias", data)),
    PublishedFigure(4, "Optimus, workload 6", lambda data: _workload("optimus", 6, data)),
    PublishedFigure(5, "Optimus, workloads 1 to 8", lambda data: _workloads("optimus", data)),
    PublishedFigure(6, "Optimus by job load", lambda data: _job_loads("optimus", data)),
    PublishedFigure(7, "Pollux, workloads 1 to 8", _pollux_workloads),
    PublishedFigure(8, "Pollux by job load", _pollux_loads),
    PublishedFigure(9, "Pollux by interval", _pollux_intervals),
    PublishedFigure(10, "Pollux with interference", _pollux_interference),
    PublishedFigure(11, "Order of Pollux, Tiresias, Optimus", _policy_order),
)
