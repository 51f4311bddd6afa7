"""Oracles of the environment ``sharing``: SJF-BSBF, its rule for pairs and its order."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

from studies.oracles.oracle import PublishedComparison, PublishedFigure, below, equal_count, order
from studies.training.engine import simulate_jobs
from studies.training.environments.sharing import SharingJob
from studies.training.runs.setup import JobsSetup, load
from studies.training.shared_gpus import mean_sequential_s, mean_together_s

_PAIRS = 10_000
_STARTS = 50  # of the second job, between now and the end of the first
_TOLERANCE_RATIO = 1e-9
_SEEDS = range(5)
_JOBS = 240
_LOADS = (1.0, 8.0)  # 8: nearly all jobs wait from the start
_NODES, _GPUS = 16, 4
_POLICIES = ("sjf-bsbf", "sjf-ffs", "sjf", "tiresias-events")


def pair(
    new_s: float, running_s: float, new_ratio: float, running_ratio: float
) -> tuple[SharingJob, SharingJob]:
    """Return a new and a running job with these run times and slow-downs."""
    slowdowns = {("new", "running"): new_ratio, ("running", "new"): running_ratio}
    new, running = (
        SharingJob(
            name=name, model=name, submit_s=0.0, gpus=1, work_count=seconds, slowdowns=slowdowns
        )
        for name, seconds in (("new", new_s), ("running", running_s))
    )
    return new, running


def simulated_mean_s(
    start_s: float, new_s: float, running_s: float, new_ratio: float, running_ratio: float
) -> float:
    """Return the mean completion time if the new job starts at a time, event by event."""
    remaining_s = {"new": new_s, "running": running_s}
    ratios = {"new": new_ratio, "running": running_ratio}
    ends_s: dict[str, float] = {}
    now_s = 0.0
    while remaining_s:
        active = [name for name in remaining_s if name == "running" or now_s >= start_s]
        pace = ratios if len(active) > 1 else dict.fromkeys(remaining_s, 1.0)
        events_s = [now_s + remaining_s[name] * pace[name] for name in active]
        next_s = min(events_s, default=inf)
        if "new" in remaining_s and now_s < start_s:
            next_s = min(next_s, start_s)
        for name, end_s in zip(active, events_s, strict=True):
            if end_s <= next_s:
                ends_s[name] = end_s
                del remaining_s[name]
            else:
                remaining_s[name] -= (next_s - now_s) / pace[name]
        now_s = next_s
    return fmean(ends_s.values())


def _pair_rule(data: Path) -> Iterator[PublishedComparison]:  # noqa: ARG001 - needs no data
    random = Random(0)
    errors_ratio = [0.0]
    worse = 0
    for _ in range(_PAIRS):
        new_s, running_s = random.uniform(1, 1000), random.uniform(1, 1000)
        ratios = random.uniform(1, 4), random.uniform(1, 4)
        jobs = pair(new_s, running_s, *ratios)
        together_s, sequential_s = mean_together_s(*jobs), mean_sequential_s(*jobs)
        for start_s, mean_s in ((0.0, together_s), (running_s, sequential_s)):
            expected_s = simulated_mean_s(start_s, new_s, running_s, *ratios)
            errors_ratio.append(abs(mean_s / expected_s - 1))
        least_s = min(together_s, sequential_s) * (1 - _TOLERANCE_RATIO)
        starts_s = (running_s * i / _STARTS for i in range(1, _STARTS))
        worse += any(simulated_mean_s(s, new_s, running_s, *ratios) < least_s for s in starts_s)
    error_ratio = max(errors_ratio)
    yield PublishedComparison(
        f"means of {_PAIRS:,} pairs against a simulation: largest difference",
        f"{error_ratio:.1g}",
        f"at most {_TOLERANCE_RATIO:g}",
        error_ratio <= _TOLERANCE_RATIO,
    )
    what = f"pairs of {_PAIRS:,} with a better start than now or the other's end"
    yield equal_count(what, worse, 0)


def mean_jct_s(data: Path, policy: str, load_ratio: float) -> float:
    """Return the mean over generated traces of the shape of Philly, with Gavel's job types."""
    return fmean(_run_s(data, policy, load_ratio, seed) for seed in _SEEDS)


def _run_s(data: Path, policy: str, load_ratio: float, seed: int) -> float:
    setup = JobsSetup(
        policy=policy,
        environment="sharing",
        data=data,
        nodes=_NODES,
        gpus=_GPUS,
        seed=seed,
        settings={"job_count": _JOBS, "load_ratio": load_ratio},
    )
    environment, decider = load(setup)
    return simulate_jobs(environment, decider, policy).mean_jct_s


def _policy_order(data: Path) -> Iterator[PublishedComparison]:
    light, heavy = ({p: mean_jct_s(data, p, ratio) for p in _POLICIES} for ratio in _LOADS)
    values_s = [light["sjf-bsbf"], light["sjf-ffs"]]
    yield order(f"load {_LOADS[0]:g}", ["sjf-bsbf", "sjf-ffs"], values_s)
    for rival, published in (
        ("tiresias-events", "-27 to -33 %"),
        ("sjf-ffs", "up to -17 %"),
        ("sjf", "not worse"),
    ):
        gain_ratio = heavy["sjf-bsbf"] / heavy[rival] - 1
        yield below(f"sjf-bsbf over {rival}, load {_LOADS[1]:g}", gain_ratio, published)


ORACLES = (
    PublishedFigure(23, "SJF-BSBF against Tiresias, SJF-FFS and SJF", _policy_order),
    PublishedFigure(24, "SJF-BSBF's rule for pairs", _pair_rule),
)
