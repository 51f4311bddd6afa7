"""``esg paper``, called by `make paper`: the ESG paper's evaluation, and docs/paper.md."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from scheduler.model.documents import Document
from studies.page import errors_of, update_document, with_blocks
from studies.paper import equal_hits
from studies.paper.document import (
    BLOCKS,
    FIGURES,
    Evaluation,
    blocks,
)
from studies.paper.evaluation import SHIPPED, EvaluationSize, Findings, Order, RunKey, orders
from studies.paper.measured_document import (
    MEASURED_BLOCKS,
    MEASURED_POLICIES,
    MEASURED_PREFIX,
    MeasuredInput,
    measured_blocks,
)
from workbench.commands.simulate.jobs import documents_of
from workbench.commands.simulate.progress import run_jobs
from workbench.reports.renderer import require_extra
from workbench.series.executors import SeriesProcesses
from workbench.simulation.registry import container_policy_names
from workbench.simulation.runs.job import Outcome
from workbench.simulation.runs.result_cache import ResultCache


def evaluate(
    document: Path,
    *,
    size: EvaluationSize,
    policies: Sequence[str] | None,
    target_ratios: Sequence[float],
    processes: SeriesProcesses,
    cache: Path,
    resume: bool,
    measured: MeasuredInput | None = None,
) -> None:
    """Run all policies as in the ESG paper and update one part of the document.

    With measured input that part is the one about measured profiles. The document is checked before
    the first run, and read after the last one: that may be hours later, and people edit it.
    """
    if measured is None:
        documents, default = documents_of(None), container_policy_names()
        places, prefix = tuple(BLOCKS), ""
    else:
        default, places, prefix = list(MEASURED_POLICIES), MEASURED_BLOCKS, MEASURED_PREFIX
        with errors_of(measured.folder):
            documents = measured.documents()
            ground = measured.ground(documents)
        size = replace(size, ground=ground, resized=False, ablation=False)
    with errors_of(document):
        require_extra()
        with_blocks(document.read_text(encoding="utf-8"), dict.fromkeys(places, ""), prefix)
    names = list(dict.fromkeys([SHIPPED, *(policies or default)]))
    store = ResultCache(cache, documents)
    if not resume:
        store.clear()
    results = results_of(orders(names, size), documents, store, processes)
    searched = [name for name in equal_hits.POLICIES if name in names]
    while further := equal_hits.next_round(Findings.of(results), searched, size, target_ratios):
        results |= results_of(further, documents, store, processes)
    evaluation = Evaluation(names, Findings.of(results), size, target_ratios)
    if measured is None:
        generated = blocks(evaluation)
        drawn = {name: draw(evaluation) for name, draw in FIGURES.items()}
    else:
        generated, drawn = measured_blocks(evaluation, documents), {}
    update_document(document, generated, prefix, drawn)


def results_of(
    runs: Sequence[Order],
    documents: Sequence[Document],
    store: ResultCache,
    processes: SeriesProcesses,
) -> dict[RunKey, Outcome]:
    """Read cached results and run the rest; exit if a run fails or is interrupted."""
    cached = {run.key: store.read(_file_stem(run), run.job) for run in runs}
    results = {key: outcome for key, outcome in cached.items() if outcome is not None}
    missing = [run for run in runs if run.key not in results]
    typer.echo(f"{len(runs)} runs, {len(missing)} of them to do", err=True)
    failures, remaining = [], len(missing)
    try:
        for number, outcome in run_jobs(
            [run.job for run in missing], documents, processes=processes
        ):
            run = missing[number]
            if outcome.whole:
                store.write(_file_stem(run), outcome)
                results[run.key] = outcome
                remaining -= 1
            else:
                failures.append(f"{run.variant}: {outcome.job}: {outcome.failure}")
    finally:
        for failure in failures:
            typer.echo(f"error: {failure}", err=True)
        if remaining:
            typer.echo(
                f"{remaining} runs are missing; completed runs are cached; resume with --continue",
                err=True,
            )
    if remaining:
        raise typer.Exit(1)
    return results


def _file_stem(run: Order) -> str:
    """Build a file name from letters, digits and hyphens that is unique to the run."""
    variant, policy, setting, seed = run.key
    words = "".join(sign if sign.isalnum() else "-" for sign in f"{policy}-{variant}").split("-")
    return "-".join([*filter(None, words), setting, str(seed)])
