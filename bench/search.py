"""How long the search takes: the kernel alone, through the Python front, against the paper's bound.

    .venv/bin/python bench/search.py

Profiles are generated (seeded, with 5 % of noise, so that they are not monotone). Each line: stages
x configurations, time to prepare, then median and minimum of one query over budgets from 1.2 to 3
times the fastest. Last line: the query without the Python front, and how many times that A* with
the paper's additive bound takes, compiled, for the same questions.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.answering import Ceilings, rank
from scheduler.search.dag import Dag
from scheduler.search.planner import Planner, PlanRequest, prepare
from scheduler.search.rules import Rules
from scheduler.search.tables import Tables
from scheduler.search.tail import graph_of, run_astar
from scheduler.search.workflows import Workflows

FACTORS = (1.2, 1.5, 2.0, 3.0)
REPEATS = 300


def chain(stages: int) -> list[list[int]]:
    """One after the other."""
    return [[v - 1] if v else [] for v in range(stages)]


def fork_and_join(stages: int) -> list[list[int]]:
    """One, then many side by side, then one."""
    return [[], *([0] for _ in range(stages - 2)), list(range(1, stages - 1))]


def any_order(stages: int, seed: int) -> list[list[int]]:
    """Each stage after one to three earlier ones."""
    chance = random.Random(seed)
    counts = [min(v, chance.choice((1, 1, 2, 2, 3))) for v in range(stages)]
    return [sorted(chance.sample(range(v), count)) for v, count in enumerate(counts)]


def documents(after: Sequence[Sequence[int]], configurations: int, seed: int = 0) -> Catalogue:
    """A workflow "w" of stages s0.. and their functions' noisy profiles."""
    chance = random.Random(seed)
    grid = [(b, c, g) for b in range(1, 17) for c in (1, 2, 4, 8) for g in range(14, 101, 3)]
    profiles = []
    for v in range(len(after)):
        t0_ms, phi = chance.uniform(50, 1000), chance.uniform(0.1, 0.3)
        alpha, beta, gamma = (
            chance.uniform(0.5, 0.8),
            chance.uniform(0.5, 0.7),
            chance.uniform(0.3, 0.8),
        )
        rows = [
            {
                "batch": b,
                "cpu": c,
                "gpuPercent": g,
                "memoryMib": 1000,
                "latencyMs": t0_ms
                * (phi * b / c**alpha + (1 - phi) * b**beta / (g / 14) ** gamma)
                * chance.lognormvariate(0, 0.05),
            }
            for b, c, g in chance.sample(grid, configurations)
        ]
        gpu = {"model": "gpu", "sparse": True, "configurations": rows}
        profiles.append({"metadata": {"name": f"f{v}"}, "spec": {"gpus": [gpu]}})
    stages = [
        {"name": f"s{v}", "function": f"f{v}", "after": [f"s{p}" for p in before]}
        for v, before in enumerate(after)
    ]
    workflow = {
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"slo": {"latencyMs": 60_000}, "stages": stages},
    }
    return Catalogue.of(
        [Workflow.model_validate(workflow), *map(FunctionProfile.model_validate, profiles)]
    )


def microseconds(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Median and minimum of so many calls, after one that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times), min(times)


def measure(name: str, after: Sequence[Sequence[int]], configurations: int) -> None:
    """One line: preparation, and queries through the Python front."""
    catalogue = documents(after, configurations)
    start = time.perf_counter()
    planner = Planner(catalogue)
    planner.plan(PlanRequest(namespace="default", workflow="w", stage="s0"))
    prepared_ms = (time.perf_counter() - start) * 1e3
    fastest_ms = planner.fastest_ms("default", "w")
    medians, minima, exact = [], [], True
    for factor in FACTORS:
        request = PlanRequest(
            namespace="default", workflow="w", stage="s0", slack_ms=factor * fastest_ms
        )
        median, least = microseconds(lambda request=request: planner.plan(request), 50)  # type: ignore[misc]
        medians.append(median)
        minima.append(least)
        exact &= planner.plan(request).exact
    print(
        f"{name:28} prepare {prepared_ms:8.1f} ms   query median {statistics.median(medians):9.1f}"
        f" us   min {min(minima):9.1f} us   worst median {max(medians):9.1f} us   exact {exact}"
    )


def against_additive(stages: int, configurations: int) -> tuple[float, float]:
    """Median query of the frontier, and of A* with the paper's bound, on a chain; microseconds."""
    catalogue = documents(chain(stages), configurations)
    tables = Tables(catalogue, Rules())
    option = Workflows(catalogue, tables, Rules()).workflow("default", "w").stage("s0").options[0]
    first = option.table
    frontiers = [tables.of(f"f{v}")[0].frontier for v in range(1, stages)]
    graph = graph_of(Dag.of(chain(stages)), frontiers, additive=True)
    order = np.argsort(first.latency_ms, kind="stable")
    first_ms, first_cost = first.latency_ms[order], first.cost[order]
    fastest_ms = float(first_ms[0] + option.tail.frontier.time_ms[0])
    by_frontier, by_astar = [], []
    for factor in FACTORS:
        budget_ms = factor * fastest_ms
        ranking = rank(option, Ceilings(), budget_ms, 5)
        answer = run_astar(graph, first_ms, first_cost, budget_ms, 5, 200_000, additive=True).answer
        expected = np.sort(answer.cost)[: len(ranking.path_cost)]
        assert np.allclose(ranking.path_cost, expected, rtol=1e-12, atol=0)
        by_frontier.append(microseconds(lambda b=budget_ms: rank(option, Ceilings(), b, 5))[0])  # type: ignore[misc]
        by_astar.append(
            microseconds(
                lambda b=budget_ms: run_astar(  # type: ignore[misc]
                    graph, first_ms, first_cost, b, 5, 200_000, additive=True
                ),
                5,
            )[0]
        )
    return statistics.median(by_frontier), statistics.median(by_astar)


def main() -> None:
    """Print the table and the last line."""
    prepare()
    for name, after, configurations in (
        ("chain 3 x 256", chain(3), 256),
        ("chain 5 x 256", chain(5), 256),
        ("chain 20 x 256", chain(20), 256),
        ("fork-join 16 x 64", fork_and_join(16), 64),
        *((f"any order 12 x 32, seed {s}", any_order(12, s), 32) for s in range(2, 6)),
    ):
        measure(name, after, configurations)
    query_us, astar_us = against_additive(3, 256)
    print(f"query_us: {query_us:.1f}  vs_astar: {astar_us / query_us:.1f}")


if __name__ == "__main__":
    main()
