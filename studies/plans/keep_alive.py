"""Keep-alive rules on the Azure Functions sample: what they pay, and how many requests they delay.

    python -m studies.plans.keep_alive --data DIR [--minutes M] [--document FILE]

First each function of the sample has one process, which serves all its requests, and only its idle
times and starts count. Then `warm` serves the rare functions in the simulator. Times within a
minute are drawn. The tables are written to their parts of ``docs/limit.md``.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from scheduler.dispatch.scaling.keep_alive import DEFAULT_MS, MINUTE_MS, KeepAlive, KeepRule
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Document
from studies.page import REPOSITORY, made_by, markdown_table, update_document
from studies.plans.counted_day import INVOCATIONS
from studies.plans.warm import documents
from workbench.profiles.builders import workflow
from workbench.simulation.engine import simulate
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.azure import Azure, AzureTrace

DOCUMENT = REPOSITORY / "docs" / "limit.md"
PREFIX = "keep-"  # of the marks in the document
STARTS_MS = (2_400.0, 22_700.0)  # of a sample function; median of base models in GenTD26
RARE_PER_MINUTE = 1.0  # at most: functions of the simulation
RARE_FUNCTIONS = 24
SLO_RATIO = 4.0  # SLO of a rare function over the time of its smallest configuration
KEEPS_MS: Mapping[str, float | None] = {
    "10 minutes": DEFAULT_MS,
    "1 minute": MINUTE_MS,
    "30 s, the shortest": 0.0,
    "learned": None,
}

Floats = NDArray[np.float64]
Rules = Callable[[Floats, float], list[KeepRule]]  # after each request, of gaps and start


class KeepCost(NamedTuple):
    """Idle time and starts of all functions, and requests that waited for one."""

    paid_ms: float
    misses: int


def gaps_of(file: Path, seed: int) -> list[Floats]:
    """Return the times between the requests of each function, ms."""
    random = np.random.default_rng(seed)
    gaps = []
    for _, counts in AzureTrace.open_file(file).rows():
        minutes = np.repeat(np.arange(len(counts)), counts)
        gaps.append(np.diff(np.sort(MINUTE_MS * (minutes + random.random(len(minutes))))))
    return gaps


# -- rules


def fixed(keep_ms: float) -> Rules:
    """Keep a process for the same time after each request."""
    return lambda gaps_ms, _: [KeepRule(keep_ms)] * len(gaps_ms)


def ski_rental(gaps_ms: Floats, start_ms: float) -> list[KeepRule]:
    """Keep a process for as long as a start takes: it pays at most twice the least."""
    return [KeepRule(start_ms)] * len(gaps_ms)


def learned(gaps_ms: Floats, start_ms: float) -> list[KeepRule]:
    """Learn from the gaps, as the scaler does."""
    known = KeepAlive()
    rules = []
    for gap_ms in gaps_ms.tolist():
        rules.append(known.rule)
        known.learn(gap_ms, start_ms)
    return rules


def histogram(gaps_ms: Floats, _: float) -> list[KeepRule]:
    """Return before the 5th percentile of the gaps and stay until the 99th (Shahrad et al., 2020).

    In bins of a minute up to four hours, with a tenth to spare; ten minutes where five gaps are not
    known, or the coefficient of variation of the bins is below 2.
    """
    bins, rules = np.zeros(240), []
    for gap_ms in gaps_ms.tolist():
        rules.append(_histogram_rule(bins))
        bins[min(int(gap_ms / MINUTE_MS), len(bins) - 1)] += 1
    return rules


def _histogram_rule(bins: Floats) -> KeepRule:
    count = bins.sum()
    if count < 5 or bins.std() < 2 * bins.mean():
        return KeepRule(DEFAULT_MS)
    known = np.cumsum(bins)
    head, tail = np.searchsorted(known, [0.05 * count, 0.99 * count])
    end_ms = 1.1 * MINUTE_MS * (tail + 1)
    if not head:
        return KeepRule(end_ms)
    begin_ms = 0.9 * MINUTE_MS * head
    return KeepRule(0.0, begin_ms, end_ms - begin_ms)


RULES: Mapping[str, Rules] = {
    "10 minutes": fixed(DEFAULT_MS),
    "1 minute": fixed(MINUTE_MS),
    "as long as a start: ski rental": ski_rental,
    "histogram, 5th to 99th percentile": histogram,
    "learned": learned,
}


def cost_of(gaps: list[Floats], start_ms: float, rules: Rules) -> KeepCost:
    """Sum what a rule pays for all functions."""
    paid_ms, misses = 0.0, 0
    for gaps_ms in gaps:
        for gap_ms, rule in zip(gaps_ms.tolist(), rules(gaps_ms, start_ms), strict=True):
            cost_ms, has_waited = rule.idle_and_starts(gap_ms, start_ms)
            paid_ms += cost_ms
            misses += has_waited
    return KeepCost(paid_ms, misses)


def least_ms(gaps: list[Floats], start_ms: float) -> float:
    """Return the least cost without a miss: that of a rule that knows all gaps."""
    return float(sum(np.minimum(gaps_ms, start_ms).sum() for gaps_ms in gaps))


def rules_table(gaps: list[Floats]) -> str:
    """Format what each rule pays, and its misses."""
    requests = sum(map(len, gaps))
    rows = []
    for name, rules in RULES.items():
        cells = []
        for start_ms in STARTS_MS:
            cost = cost_of(gaps, start_ms, rules)
            cells += [
                f"{cost.paid_ms / least_ms(gaps, start_ms):.2f}",
                f"{100 * cost.misses / requests:.2f}",
            ]
        rows.append([name, *cells])
    head = ["keep-alive"]
    for start_ms in STARTS_MS:
        head += [f"a start of {start_ms / 1000:g} s: paid / least", "waited for a start, %"]
    return markdown_table(head, rows)


# -- in the simulator


def rare_functions(file: Path, minutes: int) -> list[str]:
    """Return the functions that are called at least twice, and rarely, in the first minutes."""
    counts = {name: row[:minutes].sum() for name, row in AzureTrace.open_file(file).rows()}
    rare = [name for name, count in counts.items() if 2 <= count <= RARE_PER_MINUTE * minutes]
    return sorted(rare)[:RARE_FUNCTIONS]


def rare_catalogue(functions: int) -> Catalogue:
    """Return as many workflows of one stage; their profiles are those of the samples, in turn."""
    samples = list(documents().profiles.values())
    listed: list[Document] = []
    for number in range(functions):
        sample = samples[number % len(samples)]
        name = f"f{number}"
        metadata = sample.metadata.model_copy(update={"name": name})
        slowest_ms = max(
            c.latency_ms for g in sample.spec.gpus for c in g.configurations if c.batch == 1
        )
        listed += [
            sample.model_copy(update={"metadata": metadata}),
            workflow([[]], name=f"w{number}", functions=[name], slo_ms=SLO_RATIO * slowest_ms),
        ]
    return Catalogue.of(listed)


def simulated_table(file: Path, minutes: int, seed: int) -> str:
    """Format hits, cost and starts of `warm` for the rare functions."""
    names = rare_functions(file, minutes)
    catalogue = rare_catalogue(len(names))
    workload = Azure.model_validate(
        {
            "file": file,
            "minutes": minutes,
            "workflowOf": {name: f"w{number}" for number, name in enumerate(names)},
        }
    )
    rows = []
    for name, keep_alive_ms in KEEPS_MS.items():
        scenario = Scenario(keep_alive_ms=keep_alive_ms, warmup_ms=0.0)
        arrivals = workload.arrivals(tuple(catalogue.workflows), seed=seed)
        result = simulate(scenario, catalogue, arrivals, "warm", seed=seed)
        rows.append(
            [
                name,
                f"{100 * result.hit_ratio:.1f}",
                f"{result.dollars_per_thousand:.2f}",
                f"{result.cold_starts:,}",
            ]
        )
    return markdown_table(["keep-alive", "in SLO, %", "paid, $ per 1,000", "cold starts"], rows)


def main(
    *,
    data: Annotated[Path, typer.Option()],
    minutes: int = 480,
    seed: int = 0,
    document: Path = DOCUMENT,
) -> None:
    """Compute both tables and write them to the document."""
    file = data / INVOCATIONS
    command = f"python -m studies.plans.keep_alive --data DIR --minutes {minutes} --seed {seed}"
    blocks = {
        "how": f"{made_by(command)}.\n",
        "rules": rules_table(gaps_of(file, seed)),
        "simulated": simulated_table(file, minutes, seed),
    }
    update_document(document, blocks, PREFIX)


if __name__ == "__main__":
    typer.run(main)
