"""Experiments on shared GPUs: policies of stations on the same requests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Document
from studies.claims.claim import ClaimedChange
from studies.oracles import sgprs
from workbench.profiles.builders import chain, profile, workflow
from workbench.simulation.engine import simulate
from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.poisson import Poisson

_SEEDS = range(3)
_TASKS = (20, 22, 24)
_BEYOND = (26, 28, 30)
_LOADS = (0.5, 0.7, 0.9, 1.1)
_LAYERS_MS = {"small": (4, 6, 5), "middle": (20, 30, 10, 25), "large": (60, 80, 70)}
_SLO_FACTOR = 10  # of the isolated time
_SPARSITY_RATIO = 0.5  # spread of the times that all layers of a request have in common
_REQUESTS = 1500
_MODELS = 6
_MODEL_MIB = 1000
_CONTEXT_MIB = 1000  # of the server, beside models
_MODELS_PER_WORKER = (1, 2, 3, 6)
_WORKERS = 4
_RATE_RPS = 60.0


# -- SGPRS


def sgprs_changes(data: Path) -> list[ClaimedChange]:  # noqa: ARG001 - needs no data
    """Compare frames in time up to the pivot, and the frames delivered beyond it."""
    return [
        change
        for pool in sgprs.POOLS
        for change in (
            _missed(pool, "up to the pivot", _TASKS),
            _missed(pool, "beyond it", _BEYOND),
            ClaimedChange(
                what=f"frames that are lost per second beyond the pivot, {pool}",
                claimed_ratio=0.0,
                changes_ratio={f"{tasks} tasks": _lost_ratio(pool, tasks) for tasks in _BEYOND},
            ),
        )
    ]


def _missed(pool: str, where: str, tasks: Sequence[int]) -> ClaimedChange:
    return ClaimedChange(
        what=f"frames of unlike tasks late or skipped {where}, against sgprs-naive, {pool}",
        claimed_ratio=0.0,
        changes_ratio={f"{count} tasks": _missed_ratio(pool, count) for count in tasks},
        points=True,
    )


def _missed_ratio(pool: str, tasks: int) -> float:
    """Return the difference of the missed parts."""
    own, naive = (
        sgprs.unlike_missed_ratio(policy, pool, tasks) for policy in ("sgprs", "sgprs-naive")
    )
    return own - naive


def _lost_ratio(pool: str, tasks: int) -> float:
    pivot, beyond = (
        sgprs.delivered_rps(sgprs.run("sgprs", count, *sgprs.POOLS[pool]))
        for count in (sgprs.UNLIKE_TASKS, tasks)
    )
    return 1 - beyond / pivot


# -- Sparse-DySta


def dysta_changes(data: Path) -> list[ClaimedChange]:  # noqa: ARG001 - needs no data
    """Compare violations and normalised turnaround by load."""
    figures: dict[str, Callable[[Result], float]] = {
        "violations": lambda result: 1 - result.hit_ratio,
        "normalised turnaround": lambda result: result.latency.mean,
    }
    results = {
        (policy, load): [_layers_result(policy, load, seed) for seed in _SEEDS]
        for policy in ("dysta", "sjf", "prema", "fcfs")
        for load in _LOADS
    }
    changes = []
    for rival in ("sjf", "prema", "fcfs"):
        for what, claimed_ratio in (("violations", -0.1), ("normalised turnaround", -0.75)):
            changes_ratio = {}
            for load in _LOADS:
                own, peer = (
                    fmean(map(figures[what], results[policy, load])) for policy in ("dysta", rival)
                )
                # Violations differ in points, as published; the other figure in proportion.
                change = own - peer if what == "violations" else own / peer - 1
                changes_ratio[f"load {load:g}"] = change
            changes.append(
                ClaimedChange(
                    what=f"{what} against {rival}",
                    claimed_ratio=claimed_ratio,
                    changes_ratio=changes_ratio,
                    at_best=True,
                    points=what == "violations",
                )
            )
    return changes


def _layers_result(policy: str, load_ratio: float, seed: int) -> Result:
    documents: list[Document] = []
    for name, times_ms in _LAYERS_MS.items():
        functions = [f"{name}-{i}" for i in range(len(times_ms))]
        documents += [
            profile(function, [(1, 1, 100, float(time_ms))])
            for function, time_ms in zip(functions, times_ms, strict=True)
        ]
        slo_ms = float(_SLO_FACTOR * sum(times_ms))
        stages = chain(len(times_ms))
        documents.append(workflow(stages, name=name, slo_ms=slo_ms, functions=functions))
    mean_s = fmean(map(sum, _LAYERS_MS.values())) / 1000
    scenario = Scenario(
        nodes=1,
        gpu_models=("gpu",),
        noise_ratio=0.0,
        request_noise_ratio=_SPARSITY_RATIO,
        warmup_ms=0.0,
    )
    return _run(scenario, Catalogue.of(documents), load_ratio / mean_s, policy, _REQUESTS, seed)


# -- Compass


def compass_changes(data: Path) -> list[ClaimedChange]:  # noqa: ARG001 - needs no data
    """Compare latency and lost requests with a worker by hash, by the memory of a worker."""
    changes = []
    results = {
        (policy, models): [_models_result(policy, models, seed) for seed in _SEEDS]
        for policy in ("compass", "home-node")
        for models in _MODELS_PER_WORKER
    }
    figures: dict[str, Callable[[Result], float]] = {
        "mean latency": lambda result: result.latency.mean,
        "requests not in time": lambda result: 1 - result.hit_ratio,
    }
    for what, figure in figures.items():
        changes_ratio = {}
        for models in _MODELS_PER_WORKER:
            own, peer = (
                fmean(map(figure, results[policy, models])) for policy in ("compass", "home-node")
            )
            label = f"{models} of {_MODELS} models fit a worker"
            changes_ratio[label] = own / peer - 1 if what == "mean latency" else own - peer
        changes.append(
            ClaimedChange(
                what=f"{what} against home-node",
                claimed_ratio=0.0,
                changes_ratio=changes_ratio,
                points=what != "mean latency",
            )
        )
    return changes


def _models_result(policy: str, models: int, seed: int) -> Result:
    functions = [f"model-{i}" for i in range(_MODELS)]
    documents: list[Document] = [
        profile(name, [(1, 1, 100, 30.0)], cold_start_ms=400.0, memory_mib=_MODEL_MIB)
        for name in functions
    ]
    half = _MODELS // 2
    documents += [
        workflow(chain(half), name=name, slo_ms=800.0, functions=used)
        for name, used in (("first", functions[:half]), ("second", functions[half:]))
    ]
    memory_mib = _CONTEXT_MIB + models * _MODEL_MIB + _MODEL_MIB // 10
    scenario = Scenario(nodes=_WORKERS, gpu_models=("gpu",), memory_mib=memory_mib, warmup_ms=0.0)
    rate_rps = _RATE_RPS / half
    return _run(scenario, Catalogue.of(documents), rate_rps, policy, _REQUESTS, seed)


def _run(  # noqa: PLR0913, PLR0917 - a run
    scenario: Scenario,
    catalogue: Catalogue,
    rate_rps: float,
    policy: str,
    requests: int,
    seed: int,
) -> Result:
    workflows: Sequence[tuple[str, str]] = tuple(sorted(catalogue.workflows))
    arrivals = Poisson(rate_rps=rate_rps).arrivals(workflows, seed=np.random.SeedSequence(seed))
    return simulate(scenario, catalogue, arrivals, policy, requests=requests, seed=seed)
