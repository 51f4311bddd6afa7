"""What it costs to split the SLO: policy esg against exact, for the same questions.

    python -m bench.policies [--workflows N] [--seed S] [--jobs J] [--out FILE]

The four sample workflows, and random ones with generated noisy profiles. Each is planned from its
entry to its end for an SLO of 0.8, 1.0 and 1.2 L, L being its longest path with every stage at its
minimum configuration: exactly, and in groups of at most 1, 3 and 5 stages. What comes out is
written as a page, ``docs/policies.md``, and printed. It follows from the seed alone.
"""

import argparse
import math
import os
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from math import inf
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from bench.splitting import (
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
from scheduler.search.rules import EXPANSIONS_MAX
from workbench.profiles.generated import WORKFLOWS

PAGE = Path(__file__).parents[1] / "docs" / "policies.md"
PAGE_COLUMNS = 120
GROUPS = ("groups of 1", "groups of 3", "groups of 5")
SHIPPED = ("exact, as shipped", "groups of 3, as shipped")
SPREAD = ("planned", "mean", "median", "p95", "most", "late", "used")


def all_random(count: int, seed: int, jobs: int) -> list[SplittingOutcome]:
    """All of them, with a bar on standard error."""
    bar = Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    found: list[SplittingOutcome] = []
    with bar, ProcessPoolExecutor(jobs) as pool:
        numbers = pool.map(partial(random_outcomes, seed), range(count), chunksize=8)
        for each in bar.track(numbers, total=count, description="random workflows"):
            found.extend(each)
    return found


def percent(ratio: float) -> str:
    """With a sign and a digit after the point."""
    return f"{100 * ratio:+.1f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def samples_table(found: Sequence[SplittingOutcome]) -> str:
    """One row a workflow and SLO."""
    shown = [*GROUPS, SHIPPED[1]]
    rows = [
        [
            each.workflow,
            f"{each.factor:g} L",
            f"{each.slo_ms:,.0f}",
            f"{1000 * each.costs['exact']:.4f}",
            *("late" if each.costs[p] == inf else percent(each.dearer(p)) for p in shown),
        ]
        for each in found
    ]
    return table(["workflow", "SLO", "SLO, ms", "exact, $ per 1,000", *shown], rows)


def spread_table(found: Sequence[SplittingOutcome], policies: Sequence[str]) -> str:
    """One row an SLO and policy: by how much it costs more, and how often it is late."""
    rows = [
        [f"{factor:g} L", *spread_row([each for each in found if each.factor == factor], policy)]
        for factor, policy in product(FACTORS, policies)
    ]
    return table(["SLO", *SPREAD], rows)


def shapes_table(found: Sequence[SplittingOutcome], policies: Sequence[str]) -> str:
    """The same by the workflow's shape, over all SLOs."""
    shapes = (("series-parallel", True), ("any other", False))
    rows = [
        [shape, *spread_row([each for each in found if each.series_parallel is is_so], policy)]
        for (shape, is_so), policy in product(shapes, policies)
    ]
    return table(["shape", *SPREAD], rows)


def spread_row(found: Iterable[SplittingOutcome], policy: str) -> list[str]:
    """What a policy costs more than exact where both keep the SLO, and the rest."""
    kept = kept_by_exact(found)
    dearer = [each.dearer(policy) for each in kept if each.costs[policy] < inf]
    if not dearer:
        return [policy, *["-"] * (len(SPREAD) - 1)]
    figures = [statistics.mean(dearer), statistics.median(dearer), rank_95(dearer), max(dearer)]
    late = f"{len(kept) - len(dearer):,} of {len(kept):,}"
    used = statistics.mean(each.used[policy] for each in kept)
    return [policy, *map(percent, figures), late, f"{100 * used:.1f} %"]


def kept_by_exact(found: Iterable[SplittingOutcome]) -> list[SplittingOutcome]:
    """Those whose SLO can be kept at all."""
    return [each for each in found if each.costs["exact"] < inf]


def rank_95(values: Sequence[float]) -> float:
    """The least of the values that 95 % of them are not above."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def reading(found: Sequence[SplittingOutcome]) -> str:
    """What the tables of the random workflows say, in sentences."""
    kept = kept_by_exact(found)
    told = []
    for policy in GROUPS:
        dearer = [each.dearer(policy) for each in kept if each.costs[policy] < inf]
        least = sum(more < TOLERANCE for more in dearer) / len(kept)
        late = 1 - len(dearer) / len(kept)
        told.append(
            f"- {policy}: {percent(statistics.mean(dearer))} in the mean; the least cost itself in "
            f"{100 * least:.1f} % of the cases, late in {100 * late:.1f} %."
        )
    return "\n".join(told)


def cut_short(found: Iterable[SplittingOutcome], shipped: str, enough: str) -> str:
    """How often the budget of work makes a policy dearer."""
    pairs = [(each.costs[shipped], each.costs[enough]) for each in found]
    dearer = sum(less < cost * (1 - TOLERANCE) for cost, less in pairs)
    return f"{dearer:,} of {len(pairs):,}"


def page(
    samples: Sequence[SplittingOutcome], randoms: Sequence[SplittingOutcome], seed: int
) -> str:
    """All of it in Markdown."""
    inexact = sum(not each.exact for each in (*samples, *randoms))
    kept = kept_by_exact(randoms)
    used = statistics.mean(each.used["exact"] for each in kept)
    exact_shipped, groups_shipped = SHIPPED
    text = f"""\
# What the split costs

<!-- Made by `make bench-policies` (bench/policies.py); change it there. -->

Policy `exact` plans all stages left in one search. Policy `esg` goes the paper's way, as we
reconstruct it from the abstract and summaries of arXiv 2404.16812: the SLO is split by dominators
and average normalised length among groups of stages, and one group is searched at a time. So what
is compared here is our exact search with our reconstruction; no code of the paper is public.

Both are asked the same: all stages from the entry on, the whole SLO being left. Run times are the
profiles', without noise; batches are full; nobody waits for a GPU. What a group leaves over of its
time goes to the next, as in service. A cost is dollars per request over all stages, given as what
it is above exact's. *Late*: the plan ends after the SLO that exact's keeps; it has no part in the
costs then. *Used*: the part of the SLO that the plan takes, in the mean. L is the longest path with
every stage at its minimum configuration (batch 1, fewest vCPUs, smallest share). All profiles are
generated, not measured.

So that the figures tell of the split alone, a search may expand {ENOUGH:,} states here;
{inexact or "none"} of exact's {len(samples) + len(randoms):,} searches ended at that.
*As shipped*: {EXPANSIONS_MAX:,} states (`ESG_EXPANSIONS_MAX`).

## The sample workflows

Chains of three and five functions with 256 configurations each.

{samples_table(samples)}

## {len(randoms) // len(FACTORS):,} random workflows

DAGs of {STAGES[0]} to {STAGES[1]} stages with one entry, each later stage after one to three
earlier ones; 64 configurations a function, with {100 * NOISE:g} % of noise in the profile (seed
{seed}). Exact keeps {len(kept):,} of the {len(randoms):,} SLOs, and uses {100 * used:.1f} % of
them.

{spread_table(randoms, GROUPS)}

Over the three SLOs together:

{reading(randoms)}

By shape:

{shapes_table(randoms, GROUPS)}

A group crosses neither a fork nor a join, so here most groups are small, whatever their limit. The
split loses in two ways. It gives each stage a part of the SLO before it is known what time buys
there. And where a workflow is not series-parallel, the parts along every path may add up to less
than the SLO: that time nobody may use.

## The budget of work

The same random workflows with the searches as shipped, against exact with {ENOUGH:,} states. The
budget makes exact dearer in {cut_short(randoms, exact_shipped, "exact")} cases, and groups of 3 in
{cut_short(randoms, groups_shipped, "groups of 3")}. In the sample workflows, whose functions have
four times as many configurations, it makes groups of 3 dearer in
{cut_short(samples, groups_shipped, "groups of 3")}.

{spread_table(randoms, SHIPPED)}"""
    return "\n\n".join(map(filled, text.strip().split("\n\n"))) + "\n"


def filled(block: str) -> str:
    """A paragraph in lines of one length, whatever its numbers are; anything else as it is."""
    if block.startswith(("#", "|", "-", "<")):
        return block
    return textwrap.fill(block, PAGE_COLUMNS, break_on_hyphens=False)


def main() -> None:
    """Work it out, write the page, print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workflows", type=int, default=1000, help="random ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    samples = [each for name in WORKFLOWS for each in outcomes(sample(name))]
    randoms = all_random(given.workflows, given.seed, given.jobs)
    text = page(samples, randoms, given.seed)
    given.out.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
