"""Oracle of the environment ``shockwave``: results published with Shockwave (NSDI 2023)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from studies.oracles.oracle import PublishedComparison, PublishedFigure, near, order
from studies.training.engine import simulate_jobs
from studies.training.runs.setup import JobsSetup, load

_TOLERANCE_RATIO = 0.15
_SHARES = {"round_s": 120.0, "reset_s": 1000.0}


class _PublishedRun(NamedTuple):
    mean_s: float
    makespan_s: float
    fairness_ratio: float  # of the job that is worst off


_PUBLISHED: Mapping[str, _PublishedRun] = {  # by worst fairness
    "gandiva-fair": _PublishedRun(12574.27, 32367.43, 1.85),
    "max-min": _PublishedRun(11274.12, 33207.66, 2.95),
    "themis": _PublishedRun(11301.98, 31928.74, 3.44),
    "allox": _PublishedRun(9926.31, 32488.62, 4.96),
}


def run(data: Path, policy: str) -> _PublishedRun:
    """Run 120 jobs on 32 GPUs."""
    setup = JobsSetup(
        policy=policy,
        environment="shockwave",
        workload=data / "training" / "shockwave" / "120-jobs.trace",
        data=data,
        settings=_SHARES,
    )
    environment, decider = load(setup)
    contention_ratio = len(environment.jobs) / environment.cluster.gpus
    alone_s = [job.alone_s() for job in environment.jobs]
    result = simulate_jobs(environment, decider, policy)
    fairness_ratio = max(
        jct_s / (time_s * contention_ratio)
        for jct_s, time_s in zip(result.jcts_s, alone_s, strict=True)
    )
    return _PublishedRun(result.mean_jct_s, result.makespan_s, fairness_ratio)


def _compare(data: Path) -> Iterator[PublishedComparison]:
    results = {policy: run(data, policy) for policy in _PUBLISHED}
    for policy, published in _PUBLISHED.items():
        yield near(policy, results[policy].mean_s, published.mean_s, _TOLERANCE_RATIO)
        makespan_s = results[policy].makespan_s
        yield near(f"{policy}, makespan", makespan_s, published.makespan_s, _TOLERANCE_RATIO)
    worst_ratios = [results[policy].fairness_ratio for policy in _PUBLISHED]
    published_ratios = [row.fairness_ratio for row in _PUBLISHED.values()]
    yield order("worst finish-time fairness", list(_PUBLISHED), worst_ratios, published_ratios)


ORACLES = (PublishedFigure(21, "Shockwave, 120 jobs, 32 GPUs", _compare),)
