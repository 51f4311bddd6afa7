"""``esg paper``, called by `make paper`: the ESG paper's evaluation, and docs/paper.md."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import Document
from studies.page import MarkError, with_blocks
from studies.paper import equal_hits
from studies.paper.document import (
    BLOCKS,
    FIGURES,
    Evaluation,
    blocks,
)
from studies.paper.evaluation import SHIPPED, EvaluationSize, Findings, Order, orders
from studies.paper.measured_document import (
    MEASURED_BLOCKS,
    MEASURED_POLICIES,
    MeasuredInput,
    measured_blocks,
)
from workbench.commands.simulate.jobs import documents_of
from workbench.commands.simulate.progress import run_jobs
from workbench.reports.renderer import MissingReportLibraryError, require_extra
from workbench.simulation.registry import container_policy_names
from workbench.simulation.runs.job import Outcome
from workbench.simulation.runs.result_cache import ResultCache
from workbench.simulation.runs.summary import summary, timings
from workbench.simulation.workloads.paper import SETTINGS

_INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended


def evaluate(
    document: Path,
    *,
    size: EvaluationSize,
    policies: Sequence[str] | None,
    target_ratio: float,
    processes: int | None,
    cache: Path,
    resume: bool,
    measured: MeasuredInput | None = None,
) -> None:
    """Run all policies as in the ESG paper and update one part of the document.

    With measured input that part is the one about measured profiles. The document is checked before
    the first run, and read after the last one: that may be hours later, and people edit it.
    """
    if unknown := [setting for setting in size.settings if setting not in SETTINGS]:
        typer.echo(f"error: no setting {unknown[0]!r}; there are {', '.join(SETTINGS)}", err=True)
        raise typer.Exit(1)
    if measured is None:
        documents, default = documents_of(None), container_policy_names()
    else:
        default = list(MEASURED_POLICIES)
        try:
            documents = measured.documents()
            ground = measured.ground(documents)
        except (OSError, UnicodeDecodeError, DocumentError) as error:
            typer.echo(f"error: {measured.folder}: {error}", err=True)
            raise typer.Exit(1) from None
        size = replace(size, ground=ground, resized=False, ablation=False)
    _text_of(document, BLOCKS if measured is None else MEASURED_BLOCKS)
    names = list(dict.fromkeys([SHIPPED, *(policies or default)]))
    store = ResultCache(cache, documents)
    if not resume:
        store.clear()
    workers = processes or os.cpu_count() or 1
    results = _results(orders(names, size), documents, store, workers)
    searched = [name for name in equal_hits.POLICIES if name in names]
    while further := equal_hits.next_orders(Findings(results), searched, size, target_ratio):
        results |= _results(further, documents, store, workers)
    evaluation = Evaluation(names, Findings(results), size, target_ratio)
    if measured is None:
        generated = blocks(evaluation)
        drawn = {name: draw(evaluation) for name, draw in FIGURES.items()}
    else:
        generated, drawn = measured_blocks(evaluation, documents), {}
    text = with_blocks(_text_of(document, generated), generated)
    try:
        document.write_text(text, encoding="utf-8")
        for name, png in drawn.items():
            (document.parent / name).write_bytes(png)
    except OSError as error:
        typer.echo(f"error: {document}: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {', '.join(map(str, [document, *drawn]))}", err=True)


def _text_of(document: Path, names: Iterable[str]) -> str:
    """Return the text of a document that has places for these blocks; exit if it has not."""
    try:
        require_extra()
        text = document.read_text(encoding="utf-8")
        with_blocks(text, dict.fromkeys(names, ""))
    except (OSError, UnicodeDecodeError, MarkError, MissingReportLibraryError) as error:
        typer.echo(f"error: {document}: {error}", err=True)
        raise typer.Exit(1) from None
    return text


def _results(
    runs: Sequence[Order], documents: Sequence[Document], store: ResultCache, processes: int
) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """Read cached results and run the rest; exit if a run fails or is interrupted."""
    cached = {run.key: store.read(_file_stem(run), run.job) for run in runs}
    results = {key: _numbers(outcome) for key, outcome in cached.items() if outcome is not None}
    missing = [run for run in runs if run.key not in results]
    typer.echo(f"{len(runs)} runs, {len(missing)} of them to do", err=True)
    failures, completed = [], 0
    for number, outcome in run_jobs([run.job for run in missing], documents, processes=processes):
        run = missing[number]
        if outcome.whole:
            store.write(_file_stem(run), outcome)
            results[run.key] = _numbers(outcome)
            completed += 1
        elif not outcome.stopped:
            failures.append(f"{run.variant}: {outcome.job}: {outcome.failure}")
    for failure in failures:
        typer.echo(f"error: {failure}", err=True)
    if completed < len(missing):
        remaining = len(missing) - completed
        typer.echo(
            f"{remaining} runs are missing; completed runs are cached; resume with --continue",
            err=True,
        )
        raise typer.Exit(1 if failures else _INTERRUPTED)
    return results


def _numbers(outcome: Outcome) -> dict[str, Any]:
    return timings(outcome) | summary(outcome)


def _file_stem(run: Order) -> str:
    """Build a file name from letters, digits and hyphens that is unique to the run."""
    variant, policy, setting, seed = run.key
    words = "".join(sign if sign.isalnum() else "-" for sign in f"{policy}-{variant}").split("-")
    return "-".join([*filter(None, words), setting, str(seed)])
