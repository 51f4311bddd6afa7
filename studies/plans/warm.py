"""Pods that hold their share while idle, beside other policies, under the paper's nine settings.

    python -m studies.plans.warm [--requests R] [--seeds N] [--jobs J] [--out FILE]

The result is written to ``docs/warm.md`` and printed. It depends on the numbers of requests and
seeds alone.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import typer

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile
from scheduler.search.frontiers.frontier import Frontier, in_series, pareto
from studies.page import REPOSITORY, markdown_table, write_page
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile, generated_workflow
from workbench.simulation.engine import simulate
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import GAPS_MS, SETTINGS, Paper

PAGE = REPOSITORY / "docs" / "warm.md"
FULL = "strict-heavy"
NODES = (14, 16, 18, 20, 24)
GPU_WEIGHTS = 21  # of the GPU in a mean of both resources: from 0 to 1
TOKEN_SHARES = ((2, 14), (4, 28), (8, 57))  # vCPUs and percent, of each function
TOKEN_BATCH_MAX = 4  # for which each process has memory
TOKEN_PROCESSES = 2  # of each share on each GPU


class PodVariant(NamedTuple):
    """A policy, with changes of the scenario and of the documents."""

    policy: str
    changes: Mapping[str, Any]
    documents: Callable[[], Catalogue]


def catalogue() -> Catalogue:
    """Return the sample documents."""
    profiles = map(generated_profile, FUNCTIONS)
    return Catalogue.of([*map(generated_workflow, WORKFLOWS), *profiles])


def token_catalogue() -> Catalogue:
    """Return the sample documents with the few shares that tokens keep warm on every GPU."""
    profiles = [generated_profile(function) for function in FUNCTIONS]
    return Catalogue.of([*map(generated_workflow, WORKFLOWS), *map(of_few_shares, profiles)])


def of_few_shares(profile: FunctionProfile) -> FunctionProfile:
    """Return a profile with the configurations that its processes run."""
    gpus = tuple(
        GpuProfile.model_construct(
            model=gpu.model,
            sparse=True,
            configurations=tuple(
                c
                for c in gpu.configurations
                if (c.cpu, c.gpu_percent) in TOKEN_SHARES and c.batch <= TOKEN_BATCH_MAX
            ),
        )
        for gpu in profile.spec.gpus
    )
    return profile.model_copy(update={"spec": profile.spec.model_copy(update={"gpus": gpus})})


def token_memory_mib() -> int:
    """Return the memory of all processes on one GPU."""
    profiles = token_catalogue().profiles.values()
    batches = (gpu.configurations for profile in profiles for gpu in profile.spec.gpus)
    return TOKEN_PROCESSES * sum(
        c.memory_mib for listed in batches for c in listed if c.batch == TOKEN_BATCH_MAX
    )


VARIANTS = {
    "`warm`": PodVariant("warm", {}, catalogue),
    "`warm`, `pack`": PodVariant("warm", {"placement": "pack"}, catalogue),
    "`exact`, tokens": PodVariant(
        "exact", {"idle_share": False, "warm_containers": TOKEN_PROCESSES}, token_catalogue
    ),
    "`exact`": PodVariant("exact", {"resizable": True}, catalogue),
}


class WarmCase(NamedTuple):
    """One run."""

    variant: str
    setting: str
    seed: int
    requests: int
    nodes: int = 16
    noise_ratio: float = 0.05


class WarmResult(NamedTuple):
    """Result of one run: ratio of the requests in time, and dollars per thousand requests."""

    hit_ratio: float
    dollars: float
    idle_dollars: float


def served(case: WarmCase) -> WarmResult:
    """Run one case."""
    variant, setting = VARIANTS[case.variant], SETTINGS[case.setting]
    documents = variant.documents()
    scenario = Scenario(
        slo_factor=setting.slo_factor,
        nodes=case.nodes,
        noise_ratio=case.noise_ratio,
        **variant.changes,
    )
    arrivals = Paper(load=setting.load).arrivals(tuple(documents.workflows), seed=case.seed)
    result = simulate(
        scenario, documents, arrivals, variant.policy, seed=case.seed, requests=case.requests
    )
    return WarmResult(
        result.hit_ratio, result.ran_dollars_per_thousand, result.idle_dollars_per_thousand
    )


def token_shares_text() -> str:
    """Format the shares that tokens keep warm."""
    return ", ".join(f"{percent} % with {cpus} vCPUs" for cpus, percent in TOKEN_SHARES)


def busy_ratio(setting: str, nodes: int = 16) -> float:
    """Return the least part of the cluster that the runs of requests in time occupy on average.

    A stage takes its configuration's vCPUs and percent for its run time, as a batch of any size.
    Nothing waits, and run times are those of the profile. Neither resource of the nodes is used for
    more than all of the time, and so is no mean of the two: the largest bound of several counts.
    """
    documents, cpus = catalogue(), Scenario().cpus
    slo, load = SETTINGS[setting].slo_factor, SETTINGS[setting].load
    bounds_ms = []
    for gpu_weight in np.linspace(0.0, 1.0, GPU_WEIGHTS):
        node_ms = []
        for workflow in documents.workflows.values():
            stages = [documents.profile(stage.function) for stage in workflow.spec.stages]
            frontier = reduce(
                in_series,
                (work(stage.spec.gpus[0].configurations, cpus, gpu_weight) for stage in stages),
            )
            limit_ms = slo * workflow.spec.slo.latency_ms
            node_ms.append(frontier.cost[np.searchsorted(frontier.time_ms, limit_ms, "right") - 1])
        bounds_ms.append(float(fmean(node_ms)))
    return max(bounds_ms) / (sum(GAPS_MS[load]) / 2) / nodes


def work(configurations: Sequence[Any], cpus: int, gpu_weight: float) -> Frontier:
    """Return a function's least node-ms of a request by run time, as a mean of both resources."""
    part = [
        (gpu_weight * c.gpu_percent / 100 + (1.0 - gpu_weight) * c.cpu / cpus)
        * c.latency_ms
        / c.batch
        for c in configurations
    ]
    return pareto(np.array([c.latency_ms for c in configurations]), np.array(part))


def by_setting(
    results: Mapping[WarmCase, WarmResult], field: str, factor: float, digits: int
) -> str:
    """Format means over the seeds, a row for each variant."""
    rows = []
    for variant in VARIANTS:
        cells = [
            f"{factor * mean(results, field, variant=variant, setting=setting):.{digits}f}"
            for setting in SETTINGS
        ]
        rows.append([variant, *cells])
    return markdown_table(["", *SETTINGS], rows, numeric=True)


def mean(results: Mapping[WarmCase, WarmResult], field: str, **of: Any) -> float:
    """Return the mean of a field over the cases on 16 nodes, or those that are described."""
    wanted = {"nodes": 16, "noise_ratio": 0.05} | of
    return fmean(
        getattr(result, field)
        for case, result in results.items()
        if all(getattr(case, name) == value for name, value in wanted.items())
    )


def full_table(results: Mapping[WarmCase, WarmResult]) -> str:
    """Format the full cluster by number of nodes, and without noise."""
    rows = []
    for nodes in NODES:
        of = {"variant": "`warm`", "setting": FULL, "nodes": nodes}
        cells = [f"{100 * mean(results, 'hit_ratio', **of):.1f}"]
        cells += [f"{100 * mean(results, 'hit_ratio', **of, noise_ratio=0.0):.1f}"]
        cells += [
            f"{100 * mean(results, 'hit_ratio', **{**of, 'variant': variant}):.1f}"
            for variant in VARIANTS
            if variant != "`warm`"
        ]
        rows.append([str(nodes), f"{100 * busy_ratio(FULL, nodes):.0f}", *cells])
    first, *others = VARIANTS
    head = ["nodes", "busy at least, %", first, f"{first}, no noise", *others]
    return markdown_table(head, rows, numeric=True)


def seeds_text(results: Mapping[WarmCase, WarmResult], variant: str) -> str:
    """Format the range over the seeds of the full cluster's requests within their SLO."""
    seeds = sorted({case.seed for case in results})
    of = {"variant": variant, "setting": FULL}
    percents = [100 * mean(results, "hit_ratio", **of, seed=seed) for seed in seeds]
    return f"{min(percents):.1f} to {max(percents):.1f}"


def page(results: Mapping[WarmCase, WarmResult], requests: int, seeds: int) -> str:
    """Format the whole page in Markdown."""
    first, second, *_ = VARIANTS
    busy_cells = [f"{100 * busy_ratio(setting):.0f}" for setting in SETTINGS]
    busy = markdown_table(list(SETTINGS), [busy_cells], numeric=True)
    return f"""\
# Pods with fixed shares

<!-- Generated by `make bench-warm` (studies/plans/warm.py); change it there. -->

MPS fixes the share of a process when it starts, so a warm pod holds its share while it is idle, and
its user pays for it. Policy `warm` runs the gateway's own dispatcher and scaler in the simulator
under this rule ([ADR 22](adr/0022-pods-that-hold-their-share.md)). `exact` may give a warm
container another share for each run, and an idle one holds none (`resizable: true`): what fixed
shares cost is the difference. [paper.md](paper.md) has the other policies.

`exact`, tokens, is the second mode of the decision: {TOKEN_PROCESSES} processes of each of
{len(TOKEN_SHARES)} shares ({token_shares_text()}) of each function stay warm on each GPU, with
memory for batches of {TOKEN_BATCH_MAX}: {TOKEN_PROCESSES * len(TOKEN_SHARES) * len(FUNCTIONS)}
processes, {token_memory_mib():,} MiB. Each runs with the share that it started with, which it holds
only while it runs (`idle_share: false`). Nobody pays for memory here. MPS has all that these
processes need: it enforces a share for each of them, and lets the shares of all add up to more than
the GPU, up to 48 clients. It has no arbiter: it does not let a batch wait until the shares that run
leave room for it. The gateway could, for batches that go through it alone, and kube-scheduler would
have to place pods by memory. The product does neither.

The nine settings of the ESG paper, {requests:,} requests,
{seeds} seed{"s" * (seeds > 1)}, 16 nodes of one GPU and 16 vCPU, 5 % of noise.
Profiles are generated, not measured. The warm-up (MSER-5) is left out.

## Requests within their SLO, percent

{by_setting(results, "hit_ratio", 100.0, 1)}

## Dollars per 1,000 requests, for what ran

{by_setting(results, "dollars", 1.0, 3)}

## Dollars per 1,000 requests, for what was held while nothing ran in it

{by_setting(results, "idle_dollars", 1.0, 3)}

## The full cluster

The least part of the cluster that requests in time occupy on average, percent: a linear relaxation
over vCPUs and GPUs. Nothing waits, batches fill at once and may have any size, GPUs are divided
without rest, and run times are those of the profile. No policy can do with less.

{busy}

Pods that hold their share also need a reserve for each function, because a share that is free in
one pool cannot serve another. Under {FULL} `warm` has little room for it on 16 nodes. Placement
`pack`, the tightest fit, strands parts of GPUs there that no pod fits; `defrag`, the default,
counts them. With tokens the shares of processes are as fixed, but a batch has several to choose
from, and what no batch uses serves any function.

The aim for `warm` is 90 % in each setting. Under {FULL} the seeds have {seeds_text(results, first)}
percent, and with `pack` {seeds_text(results, second)}. Requests within their SLO by number of
nodes, percent:

{full_table(results)}"""


def main(requests: int = 8_000, seeds: int = 3, jobs: int | None = None, out: Path = PAGE) -> None:
    """Run all cases, write the page and print it."""
    cases = [
        WarmCase(variant, setting, seed, requests)
        for variant, setting, seed in product(VARIANTS, SETTINGS, range(seeds))
    ]
    for variant, seed, nodes in product(VARIANTS, range(seeds), NODES):
        cases.append(WarmCase(variant, FULL, seed, requests, nodes))
        if variant == "`warm`":
            cases.append(WarmCase(variant, FULL, seed, requests, nodes, 0.0))
    cases = list(dict.fromkeys(cases))
    with ProcessPoolExecutor(jobs) as pool:
        results = dict(zip(cases, pool.map(served, cases), strict=True))
    write_page(out, page(results, requests, seeds))


if __name__ == "__main__":
    typer.run(main)
