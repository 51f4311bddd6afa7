"""Oracles of the environment ``muri``: the public simulator of Muri (SIGCOMM 2022)."""

import csv
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

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


class _Published(NamedTuple):
    mean_s: float
    makespan_s: float | None = None


_POLICIES = {  # name here: name in the published results
    "srtf": "shortest",
    "srsf": "shortest-gpu",
    "tiresias-events": "dlas-gpu",
    "antman": "antman",
}
_TRACE3 = {
    "srtf": _Published(193081.796024, 8174135.28),
    "srsf": _Published(185021.880164, 8174135.28),
    "tiresias-events": _Published(347213.248119, 8174226.28),
    "antman": _Published(305453.940738, 8174140.28),
}
_TRACE3_AT_ZERO = {
    "srtf": _Published(844394.780042),
    "srsf": _Published(798057.682913),
    "tiresias-events": _Published(2213110.127711),
    "antman": _Published(2674393.018161),
}
_TEST_BED_MEANS_S = {  # measured; Muri's own two policies are not here
    "srsf": 238612.0,
    "srtf": 249140.0,
    "tiresias-events": 336533.0,
    "themis-events": 461456.0,
}
_FIRST_JOBS = 200
_TRACE3_FIRST = {
    "srtf": _Published(120797.513227),
    "srsf": _Published(103168.241292),
    "tiresias-events": _Published(130714.156782),
    "antman": _Published(152575.461417),
    "themis-events": _Published(176989.995402),
}
_TOLERANCES_RATIO = {"antman": 0.05, "themis-events": 0.1}
_DIGITS = 6
_MAKESPAN_DIGITS = 2
_SAME_S = 1e-3  # completion times of one job


def run(data: Path, policy: str, trace: str, jobs: int | None = None) -> JobsResult:
    """Run a trace on 8 nodes of 8 GPUs."""
    setup = JobsSetup(
        policy=policy,
        environment="muri",
        workload=data / "training" / "muri" / f"{trace}.csv",
        data=data,
        settings={} if jobs is None else {"job_count": jobs},
    )
    environment, decider = load(setup)
    return simulate_jobs(environment, decider, policy)


def different_jobs(data: Path, policy: str, trace: str, result: JobsResult) -> int:
    """Count the jobs that do not complete at the published time."""
    folder = data / "training" / "muri" / "results-trace3"
    with (folder / f"{trace}-{_POLICIES[policy]}.csv").open(encoding="utf-8") as file:
        expected_s = {row["job_id"]: float(row["JCT"]) for row in csv.DictReader(file)}
    return sum(abs(job.jct_s - expected_s[job.name]) > _SAME_S for job in result.jobs)


def _trace(
    trace: str, published: Mapping[str, _Published], jobs: int | None, data: Path
) -> Iterator[PublishedComparison]:
    for policy, (mean_s, makespan_s) in published.items():
        result = run(data, policy, trace, jobs)
        what = f"{policy}, {trace}" + (f", {jobs} jobs" if jobs else "")
        if policy in _TOLERANCES_RATIO:
            yield near(what, result.mean_jct_s, mean_s, _TOLERANCES_RATIO[policy])
            continue
        yield exact(what, result.mean_jct_s, mean_s, _DIGITS)
        if makespan_s is not None:
            yield exact(f"{what}, makespan", result.makespan_s, makespan_s, _MAKESPAN_DIGITS)
            different = different_jobs(data, policy, trace, result)
            count = len(result.jobs)
            yield equal_count(f"{what}, jobs as published", count - different, count)


def _test_bed(data: Path) -> Iterator[PublishedComparison]:
    """Compare the order of the policies with that of measured runs on 64 V100."""
    means_s = [run(data, policy, "testbed_trace").mean_jct_s for policy in _TEST_BED_MEANS_S]
    measured_s = list(_TEST_BED_MEANS_S.values())
    yield order("Muri's test bed", list(_TEST_BED_MEANS_S), means_s, measured_s)


ORACLES = (
    PublishedFigure(22, "Muri's test bed, 400 jobs", _test_bed),
    PublishedFigure(15, "Muri's simulator, trace3", partial(_trace, "trace3", _TRACE3, None)),
    PublishedFigure(
        16, "Muri's simulator, all at 0", partial(_trace, "trace3_pr", _TRACE3_AT_ZERO, None)
    ),
    PublishedFigure(
        17, "Muri's simulator, 200 jobs", partial(_trace, "trace3", _TRACE3_FIRST, _FIRST_JOBS)
    ),
)
