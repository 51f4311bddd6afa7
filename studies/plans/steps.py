"""A step of the load, served by a pool and by pods that hold their shares.

    python -m studies.plans.steps [--seeds N]

The sample workflows at 0.8 of their SLO: two minutes at 5 requests a second, then as many times
more at once, of all workflows or of half of them. The table has the percent of the requests in time
by the seconds after the step in which they arrive, and what is set aside. ``pool_gpus`` are GPUs
that the pool holds at any load.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from scheduler.model.catalogue import Catalogue
from studies.page import markdown_table
from studies.plans.warm import documents
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.result import RequestRecord, Result
from workbench.simulation.scenario import Scenario

SLO_FACTOR = 0.8
RATE_RPS = 5.0
STEP_S, END_S = 120, 160
WINDOWS_S = ((0, 10), (10, 20), (20, 40))
NODES = 24


class StepCase(NamedTuple):
    """One row: the factor of the step, for half of the workflows or all, and the pods."""

    factor: int
    half: bool
    pool: bool
    pool_gpus: int = 0


CASES = (
    StepCase(10, half=False, pool=False),
    StepCase(10, half=False, pool=True),
    StepCase(10, half=False, pool=True, pool_gpus=12),
    StepCase(10, half=True, pool=False),
    StepCase(10, half=True, pool=True, pool_gpus=12),
    StepCase(4, half=False, pool=False),
    StepCase(4, half=False, pool=True, pool_gpus=6),
)


@dataclass(frozen=True)
class Step:
    """Arrivals at random whose rate steps up once."""

    case: StepCase
    workflows: tuple[tuple[str, str], ...]
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
                mean = rate * RATE_RPS / len(self.workflows) * (end_s - begin_s)
                count = random.poisson(mean)
                times_ms.append(random.uniform(1000.0 * begin_s, 1000.0 * end_s, count))
                numbers.append(np.full(count, number, np.int32))
        order = np.argsort(np.concatenate(times_ms))
        yield np.concatenate(times_ms)[order], np.concatenate(numbers)[order]


@cache
def samples() -> Catalogue:
    """Return the sample documents."""
    return documents()


def served(case: StepCase, seed: int) -> tuple[Result, list[RequestRecord]]:
    """Run one case."""
    records: list[RequestRecord] = []
    scenario = Scenario(
        slo_factor=SLO_FACTOR, nodes=NODES, pool=case.pool, pool_gpus=case.pool_gpus
    )
    arrivals = Step(case, tuple(samples().workflows), seed)
    observers = Observers(on_request=records.append)
    return simulate(scenario, samples(), arrivals, "warm", seed=seed, observers=observers), records


def row(case: StepCase, seeds: int) -> list[str]:
    """Return a row of the table: means over the seeds."""
    outcomes = [served(case, seed) for seed in range(seeds)]
    cells = []
    for begin_s, end_s in WINDOWS_S:
        hits = [
            record.outcome == "hit"
            for _, records in outcomes
            for record in records
            if begin_s <= record.arrival_ms / 1000 - STEP_S < end_s
        ]
        cells.append(f"{100 * np.mean(hits):.1f}")
    paid = np.mean([result.dollars_per_thousand for result, _ in outcomes])
    pods = f"pool, {case.pool_gpus} GPUs at least" if case.pool_gpus else "pool"
    of = "half" if case.half else "all"
    return [f"{case.factor} times, {of}", pods if case.pool else "reserved", *cells, f"{paid:.3f}"]


def main(seeds: int = 2) -> None:
    """Run all cases and print the table."""
    windows = [f"{begin_s} to {end_s} s" for begin_s, end_s in WINDOWS_S]
    head = ["step", "pods", *windows, "set aside, $ per 1,000"]
    typer.echo(markdown_table(head, [row(case, seeds) for case in CASES]))


if __name__ == "__main__":
    typer.run(main)
