"""Cost at equal hit rates under all nine settings: the shipped policy and the cheapest baseline.

    python -m studies.paper.equal_costs [--minutes M] [--seeds N] [--jobs J] [--reserved]

The tables are printed and written to their part of ``docs/paper.md``. They depend on the simulated
minutes and the number of seeds alone. INFless and FaST-GShare get the cheapest headroom that
reaches the target; the shipped policy gets the target as objective, and no headroom.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from studies.page import REPOSITORY, made_by, markdown_table, update_document
from studies.paper.command import results_of
from studies.paper.equal_hits import AtTarget, at_target, next_round
from studies.paper.evaluation import SHIPPED, EvaluationSize, Findings, RunKey
from workbench.commands.simulate.jobs import documents_of
from workbench.series.executors import SeriesProcesses
from workbench.simulation.runs.job import Outcome
from workbench.simulation.runs.result_cache import ResultCache
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import SETTINGS

TARGET_RATIOS = (0.95, 0.99)
BASELINES = ("infless", "fast-gshare")
PREFIX = "nine-"  # of the marks in the document


def equal_costs(findings: Findings, size: EvaluationSize) -> dict[str, str]:
    """Render the blocks of this part of the document by name."""
    return {"how": _how(size), "costs": "\n".join(_at(findings, size, t) for t in TARGET_RATIOS)}


def _how(size: EvaluationSize) -> str:
    scenario = Scenario()
    command = f"python -m studies.paper.equal_costs --minutes {size.minutes:g} --seeds {size.seeds}"
    command += "" if size.pooled else " --reserved"
    return (
        f"{made_by(command)}: {size.minutes:g} simulated minutes of arrivals a run, "
        f"{size.seeds_text}, {scenario.nodes} nodes.{size.pooled_text} Means over the "
        "seeds; where no headroom reaches the target, the run with most hits stands in brackets.\n"
    )


def _at(findings: Findings, size: EvaluationSize, target_ratio: float) -> str:
    rows = []
    for setting in size.settings:
        shipped = at_target(findings, SHIPPED, setting, target_ratio)
        searches = [
            (search, policy)
            for policy in BASELINES
            if (search := at_target(findings, policy, setting, target_ratio)) is not None
        ]
        if shipped is None or not searches:
            continue
        baseline, policy = min(searches, key=_rank)
        excess = "-"
        if shipped.reached and baseline.reached:
            excess = f"{100 * (baseline.dollars.mean / shipped.dollars.mean - 1):+.1f} %"
        rows.append([setting, *_cells(shipped), f"`{policy}`", *_cells(baseline), excess])
    figures = ["in SLO, %", "set aside, $ per 1,000", "paid / B0"]
    head = ["setting", *(f"`{SHIPPED}`: {figures[0]}", *figures[1:])]
    head += ["cheapest baseline", *figures, f"over `{SHIPPED}`"]
    return f"Target: {100 * target_ratio:g} %.\n\n{markdown_table(head, rows)}"


def _rank(search: tuple[AtTarget, str]) -> tuple[bool, float]:
    """Order the cheapest first that reaches the target, or the one with most hits."""
    outcome, _ = search
    return not outcome.reached, outcome.dollars.mean if outcome.reached else -outcome.hit_rate.mean


def _cells(outcome: AtTarget) -> Sequence[str]:
    bound = outcome.bound_ratio
    cells = (
        f"{100 * outcome.hit_rate.mean:.1f}",
        f"{outcome.dollars.mean:.3f}",
        "-" if bound is None else f"{bound.mean:.2f}",
    )
    return cells if outcome.reached else [f"({cell})" for cell in cells]


def main(  # noqa: PLR0913 - options of a command
    *,
    minutes: float = 6.0,
    seeds: int = 2,
    jobs: int = 1,
    document: Path = REPOSITORY / "docs" / "paper.md",
    cache: Path = Path("build/equal-costs"),
    resume: Annotated[bool, typer.Option("--continue")] = False,
    pooled: Annotated[bool, typer.Option("--pooled/--reserved")] = True,
) -> None:
    """Run all searches, print the tables and write them to the document."""
    size = EvaluationSize(minutes=minutes, seeds=seeds, settings=tuple(SETTINGS), pooled=pooled)
    documents = documents_of(None)
    store = ResultCache(cache, documents)
    if not resume:
        store.clear()
    results: dict[RunKey, Outcome] = {}
    policies, processes = (SHIPPED, *BASELINES), SeriesProcesses(count=jobs)
    while further := next_round(Findings.of(results), policies, size, TARGET_RATIOS):
        results |= results_of(further, documents, store, processes)
    update_document(document, equal_costs(Findings.of(results), size), PREFIX)


if __name__ == "__main__":
    typer.run(main)
