"""Experiments on training clusters: each policy and its rival on the same jobs.

The load is that of generated jobs, or the size of the cluster where jobs are those of a trace.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.claims.claim import ClaimedChange
from studies.oracles.pollux import workload_file
from studies.training.engine import simulate_jobs
from studies.training.environment import JobEnvironment
from studies.training.environments.andreas import AndreasEnvironment
from studies.training.environments.servers import ServerEnvironment
from studies.training.environments.shockwave import ShockwaveJob
from studies.training.result import JobsResult
from studies.training.runs.setup import JobsSetup, load

SEEDS = range(5)
Figure = Callable[[JobEnvironment[Any], JobsResult], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting of an experiment.

    Attributes:
        label: load, in the row of the table.
        setup: fields of `JobsSetup`.
        settings: parameters of the environment.
    """

    label: str
    setup: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalComparison:
    """A policy and its rival in one environment.

    Attributes:
        own, rival: policies, each with its parameters after a space: ``andreas order=arrival``.
        figure: figure that the claim is about; it should fall.
        seeds: seeds of generated jobs.
    """

    own: str
    rival: str
    environment: str
    cells: Sequence[Cell]
    figure: Figure
    seeds: Sequence[int] = SEEDS

    def change(
        self, data: Path, what: str, claimed_ratio: float, *, at_best: bool = False
    ) -> ClaimedChange:
        """Run both in all cells."""
        changes_ratio = {}
        for cell in self.cells:
            own, rival = (self.mean_figure(data, policy, cell) for policy in (self.own, self.rival))
            changes_ratio[cell.label] = own / rival - 1 if rival else (inf if own else 0.0)
        return ClaimedChange(
            what=f"{what} against {self.rival}",
            claimed_ratio=claimed_ratio,
            changes_ratio=changes_ratio,
            at_best=at_best,
        )

    def mean_figure(self, data: Path, policy: str, cell: Cell) -> float:
        """Run a policy with every seed."""
        setup, settings = tuple(cell.setup.items()), tuple(cell.settings.items())
        return fmean(
            self.figure(*_run(data, self.environment, policy, seed, setup, settings))
            for seed in self.seeds
        )


_Fields = tuple[tuple[str, Any], ...]


@lru_cache(maxsize=256)  # figures of one comparison, and rivals of one policy, share runs
def _run(  # noqa: PLR0913, PLR0917 - what defines a run
    data: Path, environment: str, policy: str, seed: int, setup: _Fields, settings: _Fields
) -> tuple[JobEnvironment[Any], JobsResult]:
    name, *pairs = policy.split()
    own_settings = dict(pair.split("=") for pair in pairs)
    loaded, decider = load(
        JobsSetup(
            policy=name,
            environment=environment,
            data=data,
            seed=seed,
            settings={**dict(settings), **own_settings},
            **dict(setup),
        )
    )
    return loaded, simulate_jobs(loaded, decider, name)


def mean_jct_s(environment: JobEnvironment[Any], result: JobsResult) -> float:  # noqa: ARG001
    """Return the mean job completion time."""
    return result.mean_jct_s


def makespan_s(environment: JobEnvironment[Any], result: JobsResult) -> float:  # noqa: ARG001
    """Return the time from the first submission to the last end."""
    return result.makespan_s


def missed_ratio(environment: JobEnvironment[Any], result: JobsResult) -> float:  # noqa: ARG001
    """Return the part of the jobs with a deadline that miss it."""
    met_ratio = result.deadline_hit_ratio
    return 1.0 - (1.0 if met_ratio is None else met_ratio)


def best_effort_s(environment: JobEnvironment[Any], result: JobsResult) -> float:  # noqa: ARG001
    """Return the mean completion time of the jobs without a deadline."""
    return fmean(job.jct_s for job in result.jobs if job.deadline_s == inf)


def price_dollars(environment: JobEnvironment[Any], result: JobsResult) -> float:
    """Return the price of energy and delay."""
    if not isinstance(environment, AndreasEnvironment):
        raise TypeError(f"{type(environment).__name__} has no prices")
    return environment.price_dollars(result)


def lost_utility_ratio(environment: JobEnvironment[Any], result: JobsResult) -> float:
    """Return the part of the largest utility of all jobs that is not reached."""
    if not isinstance(environment, ServerEnvironment):
        raise TypeError(f"{type(environment).__name__} has no utilities")
    return environment.lost_utility_ratio(result)


def worst_fairness_ratio(environment: JobEnvironment[Any], result: JobsResult) -> float:
    """Return the largest completion time over that with an equal part of the cluster.

    That time is the job's own alone on its GPUs times the jobs for each GPU, as published.
    """
    jobs: Sequence[ShockwaveJob] = environment.jobs
    contention_ratio = max(len(jobs) / environment.cluster.gpus, 1.0)
    return max(
        record.jct_s / (job.alone_s() * contention_ratio)
        for job, record in zip(jobs, result.jobs, strict=True)
    )


def loads(*ratios: float, jobs: int, **setup: Any) -> list[Cell]:
    """Return a cell for each load of generated jobs."""
    return [
        Cell(
            label=f"load {ratio:g}",
            setup=setup,
            settings={"load_ratio": ratio, "job_count": jobs},
        )
        for ratio in ratios
    ]


def sizes(*nodes: int, **setup: Any) -> list[Cell]:
    """Return a cell for each size of the cluster; fewer nodes are a higher load."""
    return [Cell(label=f"{n} nodes", setup={"nodes": n, **setup}) for n in nodes]


def trace_sizes(
    trace: Path, *nodes: int, gpus: int | None = None, settings: Mapping[str, Any] | None = None
) -> list[Cell]:
    """Return a cell for each size of the cluster, with the jobs of a trace."""
    setup = {"workload": trace, "gpus": gpus}
    return [
        Cell(label=f"{n} nodes", setup={"nodes": n, **setup}, settings=settings or {})
        for n in nodes
    ]


def pollux_loads(data: Path, *job_loads: str) -> list[Cell]:
    """Return a cell for each load of a workload of Pollux, on 16 nodes of 4 GPUs."""
    return [
        Cell(
            label=f"load {job_load}",
            setup={"workload": workload_file(data, 6, job_load), "nodes": 16, "gpus": 4},
        )
        for job_load in job_loads
    ]
