"""Oracle of the environment ``executors``: heuristics in Decima's simulator (SIGCOMM 2019).

The published runs are of TPC-H queries, whose durations are not available: of generated jobs only
the ratio of the two heuristics is compared. It differs from one set of 20 jobs to the next, so it
is that of many sets.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

from studies.oracles.distillation import fidelity_ratio
from studies.oracles.oracle import PublishedComparison, PublishedFigure
from studies.training.engine import simulate_jobs
from studies.training.runs.setup import JobsSetup, load

_SEEDS = range(20)
_RATIOS = (2.0, 5.0)
_FIDELITY_RATIO = 0.9
_POLICIES = MappingProxyType({"dag-fifo": "FIFO", "dag-fair": "fair"})


def mean_jct_s(policy: str, seed: int) -> float:
    """Run 20 jobs that arrive at once on 50 executors."""
    environment, decider = load(JobsSetup(policy=policy, environment="executors", seed=seed))
    return simulate_jobs(environment, decider, policy).mean_jct_s


def _compare(_: Path) -> Iterator[PublishedComparison]:
    means_s = {policy: [mean_jct_s(policy, seed) for seed in _SEEDS] for policy in _POLICIES}
    ratio = fmean(means_s["dag-fifo"]) / fmean(means_s["dag-fair"])
    ratios = [
        fifo_s / fair_s
        for fifo_s, fair_s in zip(means_s["dag-fifo"], means_s["dag-fair"], strict=True)
    ]
    low, high = _RATIOS
    yield PublishedComparison(
        f"FIFO over fair, mean of {len(_SEEDS)} sets of 20 jobs",
        f"{ratio:.2f} (sets: {min(ratios):.2f} to {max(ratios):.2f})",
        f"{low:g} to {high:g}",
        low <= ratio <= high,
    )
    fidelity = fidelity_ratio()
    yield PublishedComparison(
        "choices of dag-tree that are those of dag-shortest",
        f"{100 * fidelity:.1f} %",
        f"at least {100 * _FIDELITY_RATIO:g} %",
        fidelity >= _FIDELITY_RATIO,
    )


ORACLES = (PublishedFigure(27, "Decima's heuristics on DAG jobs", _compare),)
