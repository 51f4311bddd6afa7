"""Cost of splitting the SLO: policy esg compared with exact, for the same requests.

    python -m studies.plans.policies [--workflows N] [--seed S] [--jobs J] [--out FILE]

The four sample workflows, and random ones with generated noisy profiles. Each is planned from its
entry to its end for an SLO of 0.8, 1.0 and 1.2 L, L being its longest path with every stage at its
minimum configuration: exactly, and in groups of at most 1, 3 and 5 stages. The result is written
to ``docs/policies.md`` and printed. It depends on the seed alone.
"""

import statistics
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
import typer

from scheduler.search.rules import EXPANSIONS_MAX
from studies.page import REPOSITORY, markdown_table, percent, progress_bar, write_page
from studies.plans.splitting import (
    ENOUGH,
    FACTORS,
    NOISE,
    STAGES,
    TOLERANCE,
    SplittingOutcome,
    outcomes,
    random_outcomes,
    sample,
)
from workbench.profiles.generated import WORKFLOWS
from workbench.series.process_pool import process_pool

PAGE = REPOSITORY / "docs" / "policies.md"
GROUPS = ("groups of 1", "groups of 3", "groups of 5")
SHIPPED = "groups of 3, as shipped"
SPREAD = ("planned", "mean", "median", "p95", "maximum", "late", "used")


def all_random(count: int, seed: int, jobs: int | None) -> list[SplittingOutcome]:
    """Plan all random workflows, with a progress bar on standard error."""
    results: list[SplittingOutcome] = []
    with progress_bar() as bar, process_pool(jobs) as pool:
        numbers = pool.map(partial(random_outcomes, seed), range(count), chunksize=8)
        for batch in bar.track(numbers, total=count, description="random workflows"):
            results.extend(batch)
    return results


def samples_table(results: Sequence[SplittingOutcome]) -> str:
    """Format one row per workflow and SLO."""
    policies = [*GROUPS, SHIPPED]
    rows = [
        [
            r.workflow,
            f"{r.factor:g} L",
            f"{r.slo_ms:,.0f}",
            f"{1000 * r.costs['exact']:.4f}",
            *("late" if r.costs[p] == inf else percent(r.excess_ratio(p)) for p in policies),
        ]
        for r in results
    ]
    head = ["workflow", "SLO", "SLO, ms", "exact, $ per 1,000", *policies]
    return markdown_table(head, rows, numeric=True)


def spread_table(results: Sequence[SplittingOutcome], policies: Sequence[str]) -> str:
    """Format one row per SLO and policy: its additional cost and its rate of late plans."""
    rows = [
        [f"{factor:g} L", *spread_row([r for r in results if r.factor == factor], policy)]
        for factor, policy in product(FACTORS, policies)
    ]
    return markdown_table(["SLO", *SPREAD], rows, numeric=True)


def shapes_table(results: Sequence[SplittingOutcome], policies: Sequence[str]) -> str:
    """Format the same by the workflow's shape, over all SLOs."""
    shapes = (("series-parallel", True), ("any other", False))
    rows = [
        [shape, *spread_row([r for r in results if r.series_parallel is expected], policy)]
        for (shape, expected), policy in product(shapes, policies)
    ]
    return markdown_table(["shape", *SPREAD], rows, numeric=True)


def spread_row(results: Iterable[SplittingOutcome], policy: str) -> list[str]:
    """Summarise the additional cost of a policy where exact keeps the SLO."""
    feasible = feasible_results(results)
    excesses = [r.excess_ratio(policy) for r in feasible if r.costs[policy] < inf]
    if not excesses:
        return [policy, *["-"] * (len(SPREAD) - 1)]
    figures = [
        statistics.mean(excesses),
        statistics.median(excesses),
        float(np.percentile(excesses, 95, method="inverted_cdf")),
        max(excesses),
    ]
    late = f"{len(feasible) - len(excesses):,} of {len(feasible):,}"
    used = statistics.mean(r.used[policy] for r in feasible)
    return [policy, *map(percent, figures), late, f"{100 * used:.1f} %"]


def feasible_results(results: Iterable[SplittingOutcome]) -> list[SplittingOutcome]:
    """Return the results whose SLO exact keeps."""
    return [r for r in results if r.costs["exact"] < inf]


def summary(results: Sequence[SplittingOutcome]) -> str:
    """Summarise the random workflows in one sentence per policy."""
    feasible = feasible_results(results)
    sentences = []
    for policy in GROUPS:
        excesses = [r.excess_ratio(policy) for r in feasible if r.costs[policy] < inf]
        equal = sum(excess < TOLERANCE for excess in excesses) / len(feasible)
        late = 1 - len(excesses) / len(feasible)
        sentences.append(
            f"- {policy}: {percent(statistics.mean(excesses))} on average; minimum cost in "
            f"{100 * equal:.1f} % of the cases, late in {100 * late:.1f} %."
        )
    return "\n".join(sentences)


def ratio_range(results: Iterable[SplittingOutcome]) -> str:
    """Format the lowest and the highest cost in service over the planned cost."""
    ratios = [100 * r.served_ratio for r in results]
    return f"{min(ratios):.2f} to {max(ratios):.2f} %"


def limited(results: Iterable[SplittingOutcome], shipped: str, enough: str) -> str:
    """Count the cases in which the expansion limit raises the cost of a policy."""
    pairs = [(r.costs[shipped], r.costs[enough]) for r in results]
    raised = sum(cost < shipped_cost * (1 - TOLERANCE) for shipped_cost, cost in pairs)
    return f"{raised:,} of {len(pairs):,}"


def page(
    samples: Sequence[SplittingOutcome], randoms: Sequence[SplittingOutcome], seed: int
) -> str:
    """Format the whole page in Markdown."""
    inexact = sum(not r.exact for r in (*samples, *randoms))
    feasible = feasible_results(randoms)
    used = statistics.mean(r.used["exact"] for r in feasible)
    return f"""\
# Cost of splitting the SLO

<!-- Generated by `make bench-policies` (studies/plans/policies.py); change it there. -->

Policy `exact` plans all remaining stages in one search. Policy `esg` uses the paper's method, as
reconstructed here from the abstract and summaries of arXiv 2404.16812: it splits the SLO by
dominators and average normalised length among groups of stages, and searches one group at a time.
This page therefore compares our exact search with our reconstruction; no code of the paper is
public.

Both policies plan stage after stage, each when its predecessors have ended, with the time that is
left and with the progress of the other stages, as the service does. Run times are those of the
profiles, without noise; batches are full; no request waits for a GPU. Costs are dollars per request
over all stages, shown as the difference from exact. *Late*: the plan ends after an SLO that exact
keeps; such plans do not count in the costs. *Used*: average ratio of the plan's time to the SLO. L
is the longest path with every stage at its minimum configuration (batch 1, fewest vCPUs, smallest
GPU share). All profiles are generated, not measured.

To measure the effect of the split alone, a search over a group may expand {ENOUGH:,} states here.
*As shipped*: {EXPANSIONS_MAX:,} states (`ESG_EXPANSIONS_MAX`). Exact needs no limit;
{inexact or "none"} of its {len(samples) + len(randoms):,} plans for an entry
{"has" if inexact == 1 else "have"} an epsilon above 0.

## The sample workflows

Chains of three and five functions with 256 configurations each.

{samples_table(samples)}

## {len(randoms) // len(FACTORS):,} random workflows

DAGs of {STAGES[0]} to {STAGES[1]} stages with one entry, each later stage after one to three
earlier ones; 64 configurations per function, with {100 * NOISE:g} % of noise in the profile (seed
{seed}). Exact keeps {len(feasible):,} of the {len(randoms):,} SLOs and uses {100 * used:.1f} % of
their time.

{spread_table(randoms, GROUPS)}

Over all three SLOs:

{summary(randoms)}

By shape:

{shapes_table(randoms, GROUPS)}

A group crosses neither a fork nor a join, so most groups here are small, regardless of their limit.
The split costs more for two reasons. It assigns each stage a part of the SLO before the price of
time in that stage is known. And in a workflow that is not series-parallel, the parts along every
path may add up to less than the SLO: no stage may use that time.

## Does the service keep its plan?

The plan for the entry states a cost for all stages. Planned again at each stage, they cost
{ratio_range(feasible)} of it, over the {len(feasible):,} random workflows and SLOs.

## The expansion limit

The same random workflows with the shipped limit: it raises the cost of groups of 3 in
{limited(randoms, SHIPPED, "groups of 3")} cases. In the sample workflows, whose functions have four
times as many configurations, it raises that cost in {limited(samples, SHIPPED, "groups of 3")}."""


def main(workflows: int = 1000, seed: int = 0, jobs: int | None = None, out: Path = PAGE) -> None:
    """Run all cases, write the page and print it."""
    samples = [result for name in WORKFLOWS for result in outcomes(sample(name))]
    randoms = all_random(workflows, seed, jobs)
    write_page(out, page(samples, randoms, seed))


if __name__ == "__main__":
    typer.run(main)
