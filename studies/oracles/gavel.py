"""Oracles of the environment ``gavel``: the public simulator of Gavel (OSDI 2020) on V100."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from studies.oracles.oracle import PublishedComparison, PublishedFigure, equal_count, near
from studies.training.engine import simulate_jobs
from studies.training.result import JobsResult
from studies.training.runs.setup import JobsSetup, load

_EXACT_RATIO, _PROGRAM_RATIO, _RANDOM_RATIO = 0.001, 0.05, 0.1


class _PublishedMean(NamedTuple):
    policy: str
    mean_s: float
    tolerance_ratio: float
    makespan_s: float | None = None


_SIXTEEN_GPUS = (
    _PublishedMean("gavel-fifo", 38852.2915, _EXACT_RATIO),
    _PublishedMean("isolated", 35304.3515, _EXACT_RATIO),
    _PublishedMean("max-min", 35304.3515, _EXACT_RATIO),
    _PublishedMean("themis", 35252.1723, _PROGRAM_RATIO),
    _PublishedMean("min-makespan", 73228.1683, _PROGRAM_RATIO, 88702.29),
    _PublishedMean("gandiva", 27444.7302, _RANDOM_RATIO),
    _PublishedMean("max-throughput", 34423.16, _PROGRAM_RATIO),
)
_FOUR_GPUS = (
    _PublishedMean("gavel-fifo", 195013.0497, _EXACT_RATIO),
    _PublishedMean("isolated", 151155.1703, _EXACT_RATIO),
    _PublishedMean("max-min", 151155.1698, _EXACT_RATIO),
    _PublishedMean("min-makespan", 334482.6153, _PROGRAM_RATIO),
    _PublishedMean("gandiva", 129638.5091, _RANDOM_RATIO),
)
_SMALL = (
    _PublishedMean("gavel-fifo", 281.288232, _EXACT_RATIO, 517.75),
    _PublishedMean("isolated", 259.231765, _EXACT_RATIO),
    _PublishedMean("max-min", 259.231765, _EXACT_RATIO),
    _PublishedMean("themis", 224.797301, _PROGRAM_RATIO),
    _PublishedMean("min-makespan", 236.289076, _PROGRAM_RATIO, 351.62),
)
EXACT: Mapping[str, str] = {  # every job on 16 GPUs; name here: name in the published results
    "gavel-fifo": "fifo",
    "isolated": "isolated",
    "max-min": "max_min_fairness",
}
_SAME_S = 1e-3  # completion times of one job
_SETTINGS: Mapping[str, Mapping[str, Any]] = {"gandiva": {"reset_s": 0}}


def run(data: Path, policy: str, trace: str, nodes: int) -> JobsResult:
    """Run a trace on nodes of 4 GPUs."""
    setup = JobsSetup(
        policy=policy,
        environment="gavel",
        workload=data / "training" / "gavel" / f"{trace}.trace",
        data=data,
        nodes=nodes,
        settings=_SETTINGS.get(policy, {}),
    )
    environment, decider = load(setup)
    return simulate_jobs(environment, decider, policy)


def different_jobs(data: Path, policy: str, result: JobsResult) -> int:
    """Count the jobs that do not complete at the published time on 16 GPUs."""
    folder = data / "training" / "gavel" / "results-max_min_fairness-16-v100"
    expected_s = json.loads((folder / f"{EXACT[policy]}.json").read_text("utf-8"))
    return sum(abs(job.jct_s - expected_s[job.name]) > _SAME_S for job in result.jobs)


def _trace(
    trace: str, nodes: int, published: Sequence[_PublishedMean], data: Path
) -> Iterator[PublishedComparison]:
    for policy, mean_s, tolerance_ratio, makespan_s in published:
        result = run(data, policy, trace, nodes)
        what = f"{policy}, {trace}, {4 * nodes} GPUs"
        yield near(what, result.mean_jct_s, mean_s, tolerance_ratio)
        if makespan_s is not None:
            yield near(f"{what}, makespan", result.makespan_s, makespan_s, tolerance_ratio)
        if published is _SIXTEEN_GPUS and policy in EXACT:
            different = different_jobs(data, policy, result)
            count = len(result.jobs)
            yield equal_count(f"{what}, jobs as published", count - different, count)


ORACLES = (
    PublishedFigure(
        18, "Gavel, 96 jobs, 16 V100", partial(_trace, "max_min_fairness", 4, _SIXTEEN_GPUS)
    ),
    PublishedFigure(
        19, "Gavel, 96 jobs, 4 V100", partial(_trace, "max_min_fairness", 1, _FOUR_GPUS)
    ),
    PublishedFigure(20, "Gavel, 20 jobs, 4 V100", partial(_trace, "small_test", 1, _SMALL)),
)
