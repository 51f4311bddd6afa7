"""Pods that hold their share while idle, and pods of a pool, under the paper's nine settings.

    python -m studies.plans.warm [--requests R] [--seeds N] [--jobs J] [--out FILE]

Pods of a pool hold memory alone and take their share from a slice for each run. The result is
written to ``docs/warm.md`` and printed. It depends on the numbers of requests and
seeds alone.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import typer

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import MS_PER_HOUR
from scheduler.search.cost_bound import mean_bound_dollars, request_bounds_dollars
from studies.page import REPOSITORY, markdown_table, write_page
from workbench.profiles.generated import samples
from workbench.series.process_pool import process_pool
from workbench.simulation.engine import simulate
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workloads.paper import GAPS_MS, SETTINGS, Paper

PAGE = REPOSITORY / "docs" / "warm.md"
SHARES: Mapping[str, Mapping[str, Any]] = {  # changes of the scenario
    "reserved": {},
    "pooled": {"pool": True},
}
NODES, NODES_MAX = 16, 24
TARGETS_PERCENT = (95, 99)


class WarmCase(NamedTuple):
    """One run."""

    share: str
    setting: str
    seed: int
    requests: int
    nodes: int


class WarmResult(NamedTuple):
    """Ratio of the requests in time, and dollars per thousand requests.

    Attributes:
        dollars: price of the resources that were set aside.
        ran_dollars: the part of it in which something ran.
    """

    hit_ratio: float
    dollars: float
    ran_dollars: float
    bound_ratio: float


class NodeCount(NamedTuple):
    """Fewest nodes on which the mean over the seeds reaches a target; None: more than the limit."""

    nodes: int | None
    mean: WarmResult


Results = Mapping[WarmCase, WarmResult]


@cache
def documents() -> Catalogue:
    """Return the sample documents."""
    return Catalogue.of(samples())


def scenario_of(setting: str, nodes: int, **changes: Any) -> Scenario:
    """Return the scenario of a setting."""
    return Scenario(slo_factor=SETTINGS[setting].slo_factor, nodes=nodes, **changes)


def served(case: WarmCase) -> WarmResult:
    """Run one case."""
    scenario = scenario_of(case.setting, case.nodes, **SHARES[case.share])
    workload = Paper(load=SETTINGS[case.setting].load)
    result = simulate(
        scenario,
        documents(),
        workload.arrivals(tuple(documents().workflows), seed=case.seed),
        "warm",
        seed=case.seed,
        requests=case.requests,
    )
    if result.paid_bound_ratio is None:
        raise AssertionError("each sample workflow can be in time under each setting")
    return WarmResult(
        result.hit_ratio,
        result.dollars_per_thousand,
        result.ran_dollars_per_thousand,
        result.paid_bound_ratio,
    )


@cache
def bound_dollars(setting: str) -> float:
    """Return the least cost of a request under a setting, the mean over the workflows."""
    scenario = scenario_of(setting, NODES)
    catalogue = shaped(documents(), scenario, tuple(documents().workflows))
    return mean_bound_dollars(
        request_bounds_dollars(catalogue, scenario.rules.prices, scenario.fleet)
    )


def bound_nodes(setting: str) -> float:
    """Return the nodes that cost as much as this: fewer cannot keep the setting's requests."""
    scenario = scenario_of(setting, NODES)
    node_hour_dollars = scenario.rules.prices.request_cost_dollars(
        MS_PER_HOUR, scenario.cpus, 100, 1
    )
    gap_ms = sum(GAPS_MS[SETTINGS[setting].load]) / 2
    return bound_dollars(setting) * MS_PER_HOUR / gap_ms / node_hour_dollars


def mean(results: Results, share: str, setting: str, nodes: int) -> WarmResult | None:
    """Return the means over the seeds; None without a run."""
    seeds = [
        result
        for case, result in results.items()
        if (case.share, case.setting, case.nodes) == (share, setting, nodes)
    ]
    return WarmResult(*map(fmean, zip(*seeds, strict=True))) if seeds else None


def fewest_nodes(results: Results, share: str, setting: str, percent: int) -> NodeCount | None:
    """Return the end of the search for the fewest nodes; None: it needs another run."""
    for nodes in range(ceil(bound_nodes(setting)), NODES_MAX + 1):
        outcome = mean(results, share, setting, nodes)
        if outcome is None:
            return None
        is_reached = outcome.hit_ratio >= percent / 100
        if is_reached or nodes == NODES_MAX:
            return NodeCount(nodes if is_reached else None, outcome)
    raise AssertionError(f"{setting} needs more than {NODES_MAX} nodes")


def next_cases(results: Results, requests: int, seeds: int) -> Iterator[WarmCase]:
    """Yield the runs on 16 nodes, and of each search that goes on those on the next cluster."""
    for share, setting in product(SHARES, SETTINGS):
        tried = {c.nodes for c in results if (c.share, c.setting) == (share, setting)}
        first = ceil(bound_nodes(setting))
        following = next(n for n in range(first, NODES_MAX + 2) if n not in tried)
        nodes = {NODES} - tried
        if fewest_nodes(results, share, setting, TARGETS_PERCENT[-1]) is None:
            nodes.add(following)
        for count, seed in product(sorted(nodes), range(seeds)):
            yield WarmCase(share, setting, seed, requests, count)


def cost_table(results: Results) -> str:
    """Format hits and cost on 16 nodes."""
    rows = []
    for setting, share in product(SETTINGS, SHARES):
        result = mean(results, share, setting, NODES)
        if result is not None:
            bound = result.dollars / result.bound_ratio
            cells = [f"{100 * result.hit_ratio:.1f}", f"{result.dollars:.3f}", f"{bound:.3f}"]
            ratios = [f"{result.bound_ratio:.2f}", f"{result.ran_dollars / bound:.2f}"]
            rows.append([setting, share, *cells, *ratios])
    head = ["setting", "share", "in SLO, %", "set aside, $ per 1,000", "B0, $ per 1,000"]
    return markdown_table([*head, "set aside / B0", "ran / B0"], rows)


def nodes_table(results: Results) -> str:
    """Format the fewest nodes for each target, and what they cost for the last one."""
    rows = []
    for setting, share in product(SETTINGS, SHARES):
        counts = [fewest_nodes(results, share, setting, percent) for percent in TARGETS_PERCENT]
        cells = [_nodes_text(count) for count in counts if count is not None]
        last = counts[-1]
        ratio = f"{last.mean.bound_ratio:.2f}" if last is not None and last.nodes else "-"
        rows.append([setting, share, f"{bound_nodes(setting):.1f}", *cells, ratio])
    head = ["setting", "share", "B0, nodes", *(f"for {percent} %" for percent in TARGETS_PERCENT)]
    return markdown_table([*head, "set aside / B0 there"], rows)


def _nodes_text(count: NodeCount) -> str:
    if count.nodes is None:
        return f"> {NODES_MAX} ({100 * count.mean.hit_ratio:.1f} %)"
    return f"{count.nodes} ({100 * count.mean.hit_ratio:.1f} %)"


def page(results: Results, requests: int, seeds: int) -> str:
    """Format the whole page in Markdown."""
    return f"""\
# Pods with fixed shares

<!-- Generated by `make bench-warm` (studies/plans/warm.py); change it there. -->

MPS fixes the share of a process when it starts. Policy `warm` runs the gateway's own dispatcher and
scaler in the simulator under this rule. A *reserved* pod holds its share while it is idle, and its
user pays for it ([ADR 22](adr/0022-pods-that-hold-their-share.md)). A *pooled* one holds memory
alone while it is idle. The pool sets slices of GPUs aside and pays for them; a batch begins when
its slice has the percent and the vCPUs free (`pool: true`). The number of pods, and the size of a
pool, follow from the objective.

The nine settings of the ESG paper, {requests:,} requests, {seeds} seed{"s" * (seeds > 1)}, nodes of
one GPU and 16 vCPU, 5 % of noise, an objective of 99 %. Profiles are generated, not measured. The
warm-up (MSER-5) is left out. *Set aside* is what is held, and so paid. *B0* is the least cost of
the same requests in time: nothing waits, nothing is idle, and batches fill at once
([simulator.md](simulator.md)). [paper.md](paper.md) has the other policies.

## Cost on {NODES} nodes

{cost_table(results)}

## Fewest nodes

The smallest cluster on which the mean over the seeds reaches the target, up to {NODES_MAX} nodes.
B0 in nodes is the number whose price is B0.

{nodes_table(results)}"""


def search_results(requests: int, seeds: int, jobs: int | None) -> Results:
    """Run all cases."""
    results: dict[WarmCase, WarmResult] = {}
    with process_pool(jobs) as pool:
        while cases := list(next_cases(results, requests, seeds)):
            results |= zip(cases, pool.map(served, cases), strict=True)
    return results


def main(requests: int = 8_000, seeds: int = 3, jobs: int | None = None, out: Path = PAGE) -> None:
    """Run all cases, write the page and print it."""
    write_page(out, page(search_results(requests, seeds, jobs), requests, seeds))


if __name__ == "__main__":
    typer.run(main)
