"""The question whether one cluster serves inference and trains: its runs, setting by setting."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from scheduler.model.catalogue import Catalogue
from studies.colocation.simulation import ColocationResult, colocate
from studies.colocation.training_workers import MS_PER_HOUR, TrainingClass, TrainingShare
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import SETTINGS, Paper

INTERFERENCE_RATIO = 0.09  # measured elsewhere, in the median over pairs on a V100
SHARES = (100, 90, 80, 70, 60, 50, 40, 30, 20, 10)  # percent
HIT_LOSS_MAX = 0.005  # of the split cluster, against inference alone
ALONE, SPLIT = "inference alone", "split cluster"

NO_TRAINING = TrainingClass(percents=())
CASES: Mapping[str, tuple[TrainingClass, dict[str, float | str]]] = MappingProxyType(
    {
        ALONE: (NO_TRAINING, {}),
        "training on idle GPUs": (TrainingClass(percents=(100,)), {}),
        "training in shares": (TrainingClass(percents=SHARES), {}),
        "in shares, placed by `pack`": (TrainingClass(percents=SHARES), {"placement": "pack"}),
        "inference alone, no interference": (NO_TRAINING, {"interference_ratio": 0.0}),
        "in shares, no interference": (
            TrainingClass(percents=SHARES),
            {"interference_ratio": 0.0},
        ),
    }
)


@dataclass(frozen=True, slots=True)
class StudySize:
    """Length of the runs.

    Attributes:
        minutes: simulated time of the arrivals.
        settings: names of the paper's settings.
        seed: seed of arrivals and run times.
    """

    minutes: float
    settings: tuple[str, ...]
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StudyRow:
    """Result of one case under one setting; ``nodes`` serve inference."""

    setting: str
    case: str
    nodes: int
    result: ColocationResult


def study(
    catalogue: Catalogue, size: StudySize, on_run: Callable[[str], None] = lambda _: None
) -> Iterator[StudyRow]:
    """Run all cases; ``on_run`` receives the name of each run before it begins.

    Raises:
        ScenarioError: catalogue and cluster do not fit together.
    """
    for setting in size.settings:
        plain = Scenario(
            interference_ratio=INTERFERENCE_RATIO, slo_factor=SETTINGS[setting].slo_factor
        )

        def run(scenario: Scenario, training: TrainingClass, setting: str = setting) -> StudyRow:
            on_run(f"{setting}, {scenario.nodes} nodes")
            result = _run(catalogue, size, setting, scenario, training)
            return StudyRow(setting, "", scenario.nodes, result)

        alone = run(plain, NO_TRAINING)
        yield replace(alone, case=ALONE)
        yield _split(plain, alone, run)
        for case, (training, changes) in CASES.items():
            if case != ALONE:
                row = run(plain.model_copy(update=changes), training)
                yield replace(row, case=case)


def _run(
    catalogue: Catalogue,
    size: StudySize,
    setting: str,
    scenario: Scenario,
    training: TrainingClass,
) -> ColocationResult:
    workload = Paper(load=SETTINGS[setting].load)
    keys = tuple(sorted(catalogue.workflows))
    rate_rps = sum(workload.mean_rate_rps(keys).values())
    return colocate(
        scenario,
        catalogue,
        workload.arrivals(keys, seed=np.random.SeedSequence(size.seed)),
        training,
        seed=size.seed,
        requests=max(round(60 * size.minutes * rate_rps), 1),
    )


def _split(
    scenario: Scenario, alone: StudyRow, run: Callable[[Scenario, TrainingClass], StudyRow]
) -> StudyRow:
    """Find the fewest nodes that serve inference as well; the rest trains, undisturbed."""
    target_ratio = alone.result.inference.hit_ratio - HIT_LOSS_MAX
    best, low, high = alone, 1, scenario.nodes
    while low < high:
        middle = (low + high) // 2
        row = run(scenario.model_copy(update={"nodes": middle}), NO_TRAINING)
        if row.result.inference.hit_ratio >= target_ratio:
            best, high = row, middle
        else:
            low = middle + 1
    share = best.result.training
    gpus = (scenario.nodes - best.nodes) * scenario.gpus_per_node
    restart_h = 1000.0 * NO_TRAINING.restart_s / MS_PER_HOUR
    training = TrainingShare(
        hours=share.hours,
        inference_gpu_h=share.inference_gpu_h,
        held_gpu_h=gpus * share.hours,
        useful_gpu_h=gpus * max(share.hours - restart_h, 0.0),
        free_gpu_h=share.free_gpu_h,
        starts=gpus,
        evictions=0,
    )
    result = ColocationResult(best.result.inference, training)
    return StudyRow(alone.setting, SPLIT, best.nodes, result)
