"""Oracle of the environment ``andreas``: the search against other schedules, and prices of runs.

Its rule gives each job its first configuration with room, whatever the others need. So the best of
all orders bounds the search, and the least of all placements tells what the rule costs.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple, cast

from studies.oracles.oracle import PublishedComparison, PublishedFigure, below, equal_count
from studies.page import percent
from studies.training.cluster import TrainingCluster
from studies.training.engine import simulate_jobs
from studies.training.environments.andreas import AndreasEnvironment, EnergyJob
from studies.training.policies.andreas import Andreas, AndreasParameters, PricedJob
from studies.training.runs.setup import JobsSetup, load

_CASES = 40
_GAP_RATIO = 0.05
_SEEDS = range(3)
_JOBS = 30
_LOAD_RATIO = 0.6


class SmallCase(NamedTuple):
    """At most four jobs on three nodes of unlike GPUs."""

    jobs: list[EnergyJob]
    cluster: TrainingCluster
    now_s: float


def small_case(seed: int) -> SmallCase:
    """Return a case that brute force can solve."""
    setup = JobsSetup(
        policy="andreas",
        environment="andreas",
        nodes=3,
        gpus=4,
        seed=seed,
        settings={"job_count": 1 + seed % 4, "load_ratio": 0.3},
    )
    environment, _ = load(setup)
    jobs = list(environment.jobs)
    return SmallCase(jobs, environment.cluster, max(job.submit_s for job in jobs))


def searched_dollars(case: SmallCase, seed: int, *, randomized: bool) -> float:
    """Return the price of the schedule that the policy chooses."""
    policy = Andreas(AndreasParameters(randomized=randomized), seed)
    jobs = cast("Sequence[PricedJob]", case.jobs)  # which has the capabilities of two classes
    schedule = policy.schedule(case.now_s, jobs, case.cluster)
    placed = {name: (node, schedule.options[name].gpus) for name, node in schedule.nodes.items()}
    return proxy_dollars(case, placed)


def proxy_dollars(case: SmallCase, placed: dict[str, tuple[int, int]]) -> float:
    """Return the price until the first job ends, from its definition."""
    nodes = case.cluster.nodes
    times_s = {
        job.name: job.remaining_on_s(nodes[placed[job.name][0]].gpu_model, placed[job.name][1])
        for job in case.jobs
        if job.name in placed
    }
    span_s = min(times_s.values(), default=0.0)
    cost = 0.0
    for node, gpus in placed.values():
        cost += gpus * nodes[node].gpu_cost_per_h * span_s / 3600
    for node in {node for node, _ in placed.values()}:
        cost += nodes[node].cost_per_h * span_s / 3600
    for job in case.jobs:
        if job.name in placed:
            cost += job.late_cost_per_s * max(case.now_s + span_s - job.deadline_s, 0)
        else:
            every_s = [
                job.remaining_on_s(node.gpu_model, gpus)
                for node in nodes
                for gpus in job.options(node.gpu_model)
                if gpus <= node.gpus
            ]
            late_s = max(case.now_s + max(every_s) - job.deadline_s, 0)
            cost += 100 * job.late_cost_per_s * late_s
    return cost


def lowest_dollars(case: SmallCase) -> float:
    """Return the least price of all orders of the jobs, each in its best option with room."""
    return min(proxy_dollars(case, _in_order(case, order)) for order in permutations(case.jobs))


def least_dollars(case: SmallCase) -> float:
    """Return the least price of all placements, by brute force."""
    nodes = case.cluster.nodes
    options = [
        [
            None,
            *(
                (number, gpus)
                for number, node in enumerate(nodes)
                for gpus in job.options(node.gpu_model)
            ),
        ]
        for job in case.jobs
    ]
    minimum = inf
    for choice in product(*options):
        used = [0] * len(nodes)
        for number, gpus in filter(None, choice):
            used[number] += gpus
        if any(choice) and all(u <= node.gpus for u, node in zip(used, nodes, strict=True)):
            named = zip(case.jobs, choice, strict=True)
            minimum = min(minimum, proxy_dollars(case, {job.name: at for job, at in named if at}))
    return minimum


def _in_order(case: SmallCase, order: Sequence[EnergyJob]) -> dict[str, tuple[int, int]]:
    nodes = case.cluster.nodes
    free = [node.gpus for node in nodes]
    placed: dict[str, tuple[int, int]] = {}
    for job in order:
        ranked = []
        for number, node in enumerate(nodes):
            for gpus in job.options(node.gpu_model):
                if gpus <= free[number]:
                    remaining_s = job.remaining_on_s(node.gpu_model, gpus)
                    late = case.now_s + remaining_s > job.deadline_s
                    price = remaining_s if late else node.gpu_cost_per_h * gpus * remaining_s
                    ranked.append((late, price, free[number], number, gpus))
        if ranked:
            *_, number, gpus = min(ranked)
            placed[job.name] = (number, gpus)
            free[number] -= gpus
    return placed


def _search(data: Path) -> Iterator[PublishedComparison]:
    greedy, randomized, lowest, minimum = [], [], [], []
    for seed in range(_CASES):
        case = small_case(seed)
        greedy.append(searched_dollars(case, seed, randomized=False))
        randomized.append(searched_dollars(case, seed, randomized=True))
        lowest.append(lowest_dollars(case))
        minimum.append(least_dollars(case))
    worse = sum(drawn > first for drawn, first in zip(randomized, greedy, strict=True))
    yield equal_count(f"cases of {_CASES} where randomised is worse than greedy", worse, 0)
    gap_ratio = sum(randomized) / sum(lowest) - 1 if sum(lowest) else inf
    yield PublishedComparison(
        f"price over the best of all orders, {_CASES} cases",
        percent(gap_ratio),
        f"at most {100 * _GAP_RATIO:g} %",
        -1e-9 <= gap_ratio <= _GAP_RATIO,
    )
    excesses_ratio = [drawn / price - 1 for drawn, price in zip(randomized, minimum, strict=True)]
    yield PublishedComparison(
        f"price over the least of all placements, {_CASES} cases",
        f"{percent(sum(randomized) / sum(minimum) - 1)}; median {percent(median(excesses_ratio))}",
        "not below; no bound is published",
        min(excesses_ratio) >= -1e-9,
    )
    price = _mean_dollars(data, "andreas")
    for rival in ("fifo", "edf"):
        gain_ratio = price / _mean_dollars(data, rival) - 1
        yield below(f"price of a run over that of {rival}", gain_ratio, "-30 to -62 %")
    for order_name in ("arrival", "deadline"):
        same = _mean_dollars(data, "andreas", order=order_name, randomized=False)
        yield PublishedComparison(
            f"price of a run over that of greedy by {order_name}, with the same configurations",
            percent(price / same - 1),
            f"at most {100 * _GAP_RATIO:g} %",
            price <= (1 + _GAP_RATIO) * same,
        )


def _mean_dollars(data: Path, policy: str, **settings: object) -> float:
    prices = []
    for seed in _SEEDS:
        setup = JobsSetup(
            policy=policy,
            environment="andreas",
            data=data,
            seed=seed,
            settings={"job_count": _JOBS, "load_ratio": _LOAD_RATIO} | settings,
        )
        environment, decider = load(setup)
        result = simulate_jobs(environment, decider, policy)
        if isinstance(environment, AndreasEnvironment):
            prices.append(environment.price_dollars(result))
    return fmean(prices)


ORACLES = (PublishedFigure(25, "ANDREAS against other schedules, FIFO, EDF", _search),)
