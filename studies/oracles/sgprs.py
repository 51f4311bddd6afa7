"""Oracle of SGPRS: periodic tasks on one GPU keep their rate beyond the pivot (DATE 2024).

The published runs are of ResNet-18 at 30 frames a second on a GPU of 68 multiprocessors. Here a
task has six equal stages whose times fall with the share of the GPU as a power law, scaled so that
the pool runs out of capacity at about the published number of tasks: the shape is compared, not the
numbers. Equal tasks fill bound contexts evenly, so that a switch of contexts gains nothing; the
naive pool shows its loss with tasks of unlike lengths, at a load which the GPU can serve.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Document
from studies.oracles.oracle import PublishedComparison, PublishedFigure
from workbench.profiles.builders import chain, profile, workflow
from workbench.simulation.engine import simulate
from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.periodic import Periodic

FPS = 30.0  # of a task
SECONDS = 4  # after which the published curves have their shape here
TASKS = range(20, 31)
POOLS: Mapping[str, tuple[int, float]] = {  # contexts, their shares together in percent
    "2 contexts of 100 %": (2, 100.0),
    "3 contexts of 100 %": (3, 100.0),
    "3 contexts of 150 %": (3, 150.0),
}
_STAGES = 6
_TASK_MS = 2.0  # on the whole GPU, alone
_GAMMA = 0.75  # exponent of the share: a small model does not fill a GPU
_INTERFERENCE_RATIO = 0.09  # measured elsewhere, in the median over pairs on a V100
_GPU = "68-multiprocessor GPU"
_PERCENTS = (5, 10, 15, 20, 25, 33, 50, 67, 75, 100)
_FLAT_RATIO = 0.05  # by which the delivered rate may vary beyond the pivot
_MISSES_MAX_RATIO = 0.001
UNLIKE_TASKS = 24
_SPREAD_RATIO = 0.5  # of the logarithms of the lengths of unlike tasks
_NAIVE_MIN_RATIO = 0.01
_SEEDS = range(3)


def documents(tasks: int, spread_ratio: float = 0.0, seed: int = 0) -> Catalogue:
    """Return so many tasks, each a chain of stages.

    Args:
        tasks: number of tasks.
        spread_ratio: standard deviation of the logarithm of a task's time; the mean over tasks does
            not depend on it. Default: equal tasks.
        seed: seed of these times.
    """
    lengths = np.exp(np.random.default_rng(seed).normal(0.0, spread_ratio, tasks))
    lengths *= tasks / lengths.sum()
    listed: list[Document] = []
    for i, length in enumerate(lengths.tolist()):
        stage_ms = length * _TASK_MS / _STAGES
        rows = [(1, 1, p, stage_ms * (100 / p) ** _GAMMA) for p in _PERCENTS]
        block, name = f"block-{i:02d}", f"task-{i:02d}"
        listed.append(profile(block, {_GPU: rows}))
        stages = chain(_STAGES)
        slo_ms = 1000.0 / FPS
        listed.append(workflow(stages, name=name, slo_ms=slo_ms, functions=[block] * _STAGES))
    return Catalogue.of(listed)


def run(  # noqa: PLR0913 - a pool and a task set
    policy: str,
    tasks: int,
    contexts: int,
    contexts_percent: float,
    *,
    spread_ratio: float = 0.0,
    seed: int = 0,
) -> Result:
    """Run the tasks for some seconds; a task skips a frame while the last one is not done."""
    catalogue = documents(tasks, spread_ratio, seed)
    workflows = tuple(sorted(catalogue.workflows))
    scenario = Scenario(
        nodes=1,
        gpu_models=(_GPU,),
        contexts=contexts,
        contexts_percent=contexts_percent,
        skip_overruns=True,
        warmup_ms=0.0,
        interference_ratio=_INTERFERENCE_RATIO,
    )
    arrivals = Periodic(rate_rps=FPS * tasks).arrivals(workflows, seed=np.random.SeedSequence(seed))
    requests = int(FPS * SECONDS * tasks)
    return simulate(scenario, catalogue, arrivals, policy, requests=requests, seed=seed)


def delivered_rps(result: Result) -> float:
    """Return the completed frames a second, late ones included."""
    return (result.hits + result.misses) / SECONDS


def missed_ratio(result: Result) -> float:
    """Return the part of the frames that are late or skipped."""
    return 1.0 - result.hit_ratio


@cache
def _curve(policy: str, pool: str) -> list[Result]:
    return [run(policy, tasks, *POOLS[pool]) for tasks in TASKS]


def pivot(results: list[Result]) -> int:
    """Return the largest number of tasks without misses."""
    fitting = [
        tasks
        for tasks, result in zip(TASKS, results, strict=True)
        if missed_ratio(result) <= _MISSES_MAX_RATIO
    ]
    return max(fitting, default=TASKS[0] - 1)


def _compare(_: Path) -> Iterator[PublishedComparison]:
    """Compare the shape of the curves."""
    pivots = {pool: pivot(_curve("sgprs", pool)) for pool in POOLS}
    for pool in POOLS:
        results = _curve("sgprs", pool)
        beyond = [delivered_rps(r) for n, r in zip(TASKS, results, strict=True) if n > pivots[pool]]
        flat = bool(beyond) and min(beyond) >= (1 - _FLAT_RATIO) * max(beyond)
        misses = [missed_ratio(result) for result in results]
        rising = all(later >= earlier - 0.01 for earlier, later in pairwise(misses))
        yield PublishedComparison(
            f"sgprs, {pool}",
            f"no misses up to {pivots[pool]} tasks, then {min(beyond, default=0):.0f} to "
            f"{max(beyond, default=0):.0f} frames/s, and {100 * misses[-1]:.0f} % missed at "
            f"{TASKS[-1]} tasks",
            f"no misses, then a rate flat within {100 * _FLAT_RATIO:g} % and more misses",
            flat and rising and TASKS[0] <= pivots[pool] < TASKS[-1],
        )
    listed = list(POOLS)
    yield PublishedComparison(
        "sgprs, tasks without misses",
        ", ".join(f"{pivots[pool]} ({pool})" for pool in listed),
        "not falling",
        all(pivots[a] <= pivots[b] for a, b in pairwise(listed)),
    )
    for pool in POOLS:
        missed, naive = (unlike_missed_ratio(policy, pool) for policy in ("sgprs", "sgprs-naive"))
        yield PublishedComparison(
            f"missed by {UNLIKE_TASKS} unlike tasks, {pool}",
            f"sgprs {100 * missed:.2f} %, sgprs-naive {100 * naive:.2f} %",
            "none by sgprs, at least 1 % by sgprs-naive",
            missed <= _MISSES_MAX_RATIO and naive >= _NAIVE_MIN_RATIO,
        )


def unlike_missed_ratio(policy: str, pool: str, tasks: int = UNLIKE_TASKS) -> float:
    """Return the missed frames of tasks of unlike lengths, in the mean over seeds."""
    results = (
        run(policy, tasks, *POOLS[pool], spread_ratio=_SPREAD_RATIO, seed=seed) for seed in _SEEDS
    )
    return fmean(map(missed_ratio, results))


ORACLES = (PublishedFigure(28, "SGPRS, flat beyond the pivot", _compare),)
