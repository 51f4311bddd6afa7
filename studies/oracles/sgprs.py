"""Oracle of SGPRS: periodic tasks on one GPU keep their rate beyond the pivot (DATE 2024).

The published runs are of ResNet-18 at 30 frames a second on a GPU of 68 multiprocessors. Here a
task has six equal stages whose times fall with the share of the GPU as a power law, scaled so that
the pool runs out of capacity at about the published number of tasks: the shape is compared, not the
numbers.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from scheduler.model.catalogue import Catalogue
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


def documents(tasks: int) -> Catalogue:
    """Return so many equal tasks, each a chain of stages."""
    rows = [(1, 1, p, _TASK_MS / _STAGES * (100 / p) ** _GAMMA) for p in _PERCENTS]
    block = profile("block", {_GPU: rows})
    functions = ["block"] * _STAGES
    names = (f"task-{i:02d}" for i in range(tasks))
    chains = (
        workflow(chain(_STAGES), name=name, slo_ms=1000.0 / FPS, functions=functions)
        for name in names
    )
    return Catalogue.of([block, *chains])


def run(policy: str, tasks: int, contexts: int, contexts_percent: float) -> Result:
    """Run the tasks for some seconds; a task skips a frame while the last one is not done."""
    catalogue = documents(tasks)
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
    arrivals = Periodic(rate_rps=FPS * tasks).arrivals(workflows, seed=np.random.SeedSequence(0))
    return simulate(
        scenario, catalogue, arrivals, policy, requests=int(FPS * SECONDS * tasks), seed=0
    )


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
    for pool in ("2 contexts of 100 %", "3 contexts of 100 %"):
        missed, naive = (
            fmean(missed_ratio(result) for result in _curve(policy, pool))
            for policy in ("sgprs", "sgprs-naive")
        )
        yield PublishedComparison(
            f"missed, {pool}",
            f"sgprs {100 * missed:.2f} %, sgprs-naive {100 * naive:.2f} %",
            "sgprs not above sgprs-naive",
            missed <= naive,
        )


ORACLES = (PublishedFigure(28, "SGPRS, flat beyond the pivot", _compare),)
