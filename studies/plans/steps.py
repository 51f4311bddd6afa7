"""A step of the load, served by a pool, by pods that hold their shares, and by other policies.

    python -m studies.plans.steps [--seeds N] [--data DIR] [--document FILE]

The sample workflows at a steady load, then several times as much at once, of all workflows or of
half of them. Each case has twice the GPUs that the least cost of its largest load (B0) would pay,
so that there is room for a policy that uses it. The policies without a reserve of their own get the
least headroom that keeps the objective before the step, or the one that keeps most. The table has
the percent of the requests in time by the seconds after the step in which they arrive, and what is
set aside. With ``--data`` the same on measured profiles of others. The tables are written to their
part of ``docs/pools.md``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import OBJECTIVE
from scheduler.model.plan import MS_PER_HOUR
from scheduler.search.cost_bound import request_bounds_dollars
from studies.headrooms import HEADROOM_RATIOS
from studies.page import REPOSITORY, markdown_table, update_document
from studies.plans.warm import documents
from workbench.profiles.vision_workflows import (
    Assumptions,
    gpulet_table,
    parvagpu_table,
    vision_documents,
)
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.result import RequestRecord, Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped

PEAK_NODES = 6.0  # whose price is B0 of the largest load: ten times as much, of all workflows
MEASURED_PEAK_NODES = 1.5  # the same of measured models, whose runs take some milliseconds
LARGEST_FACTOR = 10
ROOM_RATIO = 2.0  # nodes over those of B0
MEASURED_ROOM_RATIO = 8.0  # the same where memory and vCPUs bind, of which B0 knows nothing
STEP_S, END_S = 90, 110
WINDOWS_S = ((0, 10), (10, 20))
STEADY_S = (-60, 0)
STEPS = ((10, False), (4, False), (10, True))  # factor, and whether half of the workflows step
PREFIX = "steps-"  # of the marks in the document
PODS: Mapping[str, tuple[str, Callable[[int], dict[str, Any]]]] = {  # policy, changes by nodes
    "pooled, all GPUs held": ("warm", lambda nodes: {"pool": True, "pool_gpus": nodes}),
    "pooled, by the load": ("warm", lambda _: {"pool": True}),
    "reserved": ("warm", lambda _: {}),
    "INFless": ("infless", lambda _: {}),
    "FaST-GShare": ("fast-gshare", lambda _: {}),
    "Orion": ("orion", lambda _: {}),
}
WITH_HEADROOM = ("INFless", "FaST-GShare", "Orion")


class Profiles(NamedTuple):
    """Workflows with their profiles, and the scenario around them.

    Attributes:
        peak_nodes: number whose price is the least cost of the largest load.
        room_ratio: nodes of a cluster over those of the least cost.
    """

    catalogue: Catalogue
    scenario: Scenario
    peak_nodes: float
    room_ratio: float

    def nodes(self, factor: float) -> int:
        """Return the size of the cluster for so many times the first load."""
        return ceil(self.room_ratio * self.peak_nodes * factor / LARGEST_FACTOR)

    @property
    def rate_rps(self) -> float:
        """Requests per second before the step."""
        catalogue, scenario = self.catalogue, self.scenario
        of_workflows = shaped(catalogue, scenario, tuple(catalogue.workflows))
        prices = scenario.rules.prices
        bounds = request_bounds_dollars(of_workflows, prices, scenario.fleet)
        node_dollars = prices.request_cost_dollars(MS_PER_HOUR, scenario.cpus, 100, 1)
        node_rps = node_dollars / 3_600.0 / float(np.mean([*bounds.values()]))
        return node_rps * self.peak_nodes / LARGEST_FACTOR


class StepCase(NamedTuple):
    """One row: the factor of the step, for half of the workflows or all, and the pods."""

    factor: int
    half: bool
    pods: str

    @property
    def mean_factor(self) -> float:
        """Factor of the load of all workflows together."""
        return (self.factor + 1) / 2 if self.half else self.factor


@dataclass(frozen=True)
class Step:
    """Arrivals at random whose rate steps up once."""

    case: StepCase
    workflows: tuple[tuple[str, str], ...]
    rate_rps: float
    seed: int
    chunk: int = 0

    def chunks(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int32]]]:
        """Yield all times and workflows at once."""
        random = np.random.default_rng(self.seed)
        times_ms, numbers = [], []
        for number in range(len(self.workflows)):
            rises = not self.case.half or number < len(self.workflows) / 2
            factor = self.case.factor if rises else 1
            for begin_s, end_s, rate in ((0, STEP_S, 1), (STEP_S, END_S, factor)):
                mean = rate * self.rate_rps / len(self.workflows) * (end_s - begin_s)
                count = random.poisson(mean)
                times_ms.append(random.uniform(1000.0 * begin_s, 1000.0 * end_s, count))
                numbers.append(np.full(count, number, np.int32))
        order = np.argsort(np.concatenate(times_ms))
        yield np.concatenate(times_ms)[order], np.concatenate(numbers)[order]


@cache
def generated() -> Profiles:
    """Return the sample documents under strict SLOs."""
    return Profiles(documents(), Scenario(slo_factor=0.8), PEAK_NODES, ROOM_RATIO)


def measured(data: Path) -> dict[str, Profiles]:
    """Return profiles that others measured, with the memory of their GPUs and of larger ones."""
    rapp = data / "profiles" / "rapp-v100-mps.csv"
    gpulet = data / "profiles" / "gpulet" / "inference.csv"
    parvagpu = (data / "profiles" / "parvagpu").glob("*.csv")
    ampere = Assumptions(gpu_model="A100", percent_min=14)
    turing = Assumptions(gpu_model="NVIDIA GeForce RTX 2080 Ti", percent_min=20)
    tables = {
        "RaPP, V100": (rapp.read_text(encoding="utf-8"), Assumptions(), (16,)),
        "gpulet, RTX 2080 Ti": (
            gpulet_table(gpulet.read_text(encoding="utf-8")),
            turing,
            (24, 11),
        ),
        "ParvaGPU, A100 by MIG": (
            parvagpu_table({file.stem: file.read_text(encoding="utf-8") for file in parvagpu}),
            ampere,
            (80,),
        ),
    }
    return {
        f"{name}, {gib} GiB": Profiles(
            Catalogue.of(vision_documents(text, name, assumptions)),
            Scenario(slo_factor=1.2, gpu_models=(assumptions.gpu_model,), memory_mib=gib * 1024),
            MEASURED_PEAK_NODES,
            MEASURED_ROOM_RATIO,
        )
        for name, (text, assumptions, memories_gib) in tables.items()
        for gib in memories_gib
    }


class StepOutcome(NamedTuple):
    """One run of a case."""

    result: Result
    records: list[RequestRecord]


def served(
    profiles: Profiles, case: StepCase, seed: int, headroom_ratio: float = 0.0
) -> StepOutcome:
    """Run one case."""
    records: list[RequestRecord] = []
    policy, changes = PODS[case.pods]
    nodes = profiles.nodes(case.mean_factor)
    scenario = profiles.scenario.model_copy(
        update={
            "nodes": nodes,
            "warmup_ms": 0.0,
            "headroom_ratio": headroom_ratio,
            **changes(nodes),
        }
    )
    workflows = tuple(profiles.catalogue.workflows)
    rate_rps = profiles.rate_rps
    result = simulate(
        scenario,
        profiles.catalogue,
        Step(case, workflows, rate_rps, seed),
        policy,
        seed=seed,
        rates_rps=dict.fromkeys(workflows, rate_rps / len(workflows)),
        observers=Observers(on_request=records.append),
    )
    return StepOutcome(result, records)


def outcomes(profiles: Profiles, case: StepCase, seeds: int) -> tuple[float, list[StepOutcome]]:
    """Run a case with each seed; return the headroom, and the runs with it."""
    tried: dict[float, tuple[float, list[StepOutcome]]] = {}  # by the hit ratio before the step
    ratios = HEADROOM_RATIOS[HEADROOM_RATIOS.index(0.0) :]
    for headroom_ratio in ratios if case.pods in WITH_HEADROOM else (0.0,):
        runs = [served(profiles, case, seed, headroom_ratio) for seed in range(seeds)]
        hit_ratio = hit_ratio_in(runs, *STEADY_S)
        tried.setdefault(hit_ratio, (headroom_ratio, runs))
        if hit_ratio >= OBJECTIVE:
            break
    return tried[max(tried)]


def hit_ratio_in(runs: Sequence[StepOutcome], begin_s: float, end_s: float) -> float:
    """Return the part in time of the requests that arrive in these seconds after the step."""
    hits = [
        record.outcome == "hit"
        for _, records in runs
        for record in records
        if begin_s <= record.arrival_ms / 1000 - STEP_S < end_s
    ]
    return float(np.mean(hits))


def row(profiles: Profiles, case: StepCase, seeds: int) -> list[str]:
    """Return a row of the table: means over the seeds."""
    headroom_ratio, runs = outcomes(profiles, case, seeds)
    paid = np.mean([result.dollars_per_thousand for result, _ in runs])
    ratios = [result.paid_bound_ratio or np.nan for result, _ in runs]
    of = "half" if case.half else "all"
    headroom = f", +{100 * headroom_ratio:.0f} %" if headroom_ratio else ""
    return [
        f"{case.factor} times, {of}",
        str(profiles.nodes(case.mean_factor)),
        case.pods + headroom,
        *(f"{100 * hit_ratio_in(runs, *window):.1f}" for window in (STEADY_S, *WINDOWS_S)),
        f"{paid:.4f}",
        f"{np.mean(ratios):.2f}",
    ]


def table(profiles: Profiles, seeds: int) -> str:
    """Run all cases on some profiles and format them."""
    windows = [f"{begin_s} to {end_s} s" for begin_s, end_s in WINDOWS_S]
    head = ["step", "nodes", "pods", "before", *windows, "set aside, $ per 1,000", "paid / B0"]
    cases = (StepCase(factor, half, pods) for factor, half in STEPS for pods in PODS)
    return markdown_table(head, [row(profiles, case, seeds) for case in cases])


def main(
    *,
    seeds: int = 2,
    data: Path | None = None,
    document: Path = REPOSITORY / "docs" / "pools.md",
) -> None:
    """Run all cases, print the tables and write them to the document."""
    grounds = {"Generated profiles": generated(), **({} if data is None else measured(data))}
    parts = [
        f"**{name}**, SLO {profiles.scenario.slo_factor:g} L, {seeds} seed{'s' * (seeds > 1)}, "
        f"{profiles.rate_rps:.1f} requests a second before the step:\n\n{table(profiles, seeds)}"
        for name, profiles in grounds.items()
    ]
    update_document(document, {"table": "\n".join(parts)}, PREFIX)


if __name__ == "__main__":
    typer.run(main)
