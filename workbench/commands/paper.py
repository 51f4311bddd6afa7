"""``esg paper``, which `make paper` calls: the ESG paper's evaluation, and docs/paper.md."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.commands.paper_document import FIGURES, Evaluation, MarkError, blocks, with_blocks
from workbench.commands.simulate_jobs import documents_of
from workbench.commands.simulate_progress import do_all
from workbench.reports.writing import MissingReportLibraryError
from workbench.simulation.paper import Findings, Order, orders
from workbench.simulation.registry import policy_names
from workbench.simulation.runs.result_cache import KeptFigures

_INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended


def paper(  # noqa: PLR0913 - each is an option of the command
    *,
    document: Annotated[
        Path, typer.Option(help="the document; what is made in it is made anew, the rest stays")
    ] = Path("docs/paper.md"),
    requests: Annotated[int, typer.Option(min=1, help="how many a run")] = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="how many runs of each kind")] = 5,
    policy: Annotated[
        list[str] | None, typer.Option(help="only this one beside esg; repeatable; default: all")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes; default: one a processor")
    ] = None,
    kept: Annotated[Path, typer.Option(help="folder for the figures of each run")] = Path(
        "build/paper"
    ),
    go_on: Annotated[
        bool, typer.Option("--continue", help="leave out the runs whose figures are kept")
    ] = False,
) -> None:
    """Evaluate all policies as the ESG paper did, and write what came out."""
    policies = list(dict.fromkeys(["esg", *(policy or policy_names())]))
    wanted = orders(policies, requests=requests, seeds=seeds)
    store = KeptFigures(kept)
    if not go_on:
        store.forget()
    figures = _figures(wanted, store, jobs or os.cpu_count() or 1)
    evaluation = Evaluation(policies, Findings(figures), requests=requests, seeds=seeds)
    try:
        text = with_blocks(document.read_text(encoding="utf-8"), blocks(evaluation))
        drawn = {name: draw(evaluation) for name, draw in FIGURES.items()}
        document.write_text(text, encoding="utf-8")
        for name, svg in drawn.items():
            (document.parent / name).write_text(svg, encoding="utf-8")
    except (OSError, MarkError, MissingReportLibraryError) as error:
        typer.echo(f"error: {document}: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {', '.join(map(str, [document, *drawn]))}", err=True)


def _figures(
    wanted: Sequence[Order], store: KeptFigures, processes: int
) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """Of all runs: what is kept, and what is missing done now; ends the command where one fails."""
    found = {order.key: store.read(_name(order), order.job) for order in wanted}
    missing = [order for order in wanted if found[order.key] is None]
    typer.echo(f"{len(wanted)} runs, {len(missing)} of them to do", err=True)
    failures, whole = [], 0
    for number, outcome in do_all(
        [order.job for order in missing], documents_of(None), processes=processes
    ):
        order = missing[number]
        if outcome.whole:
            found[order.key] = store.keep(_name(order), outcome)
            whole += 1
        elif not outcome.stopped:
            failures.append(f"{order.variant}: {outcome.job}: {outcome.failure}")
    for failure in failures:
        typer.echo(f"error: {failure}", err=True)
    if whole < len(missing):
        left = len(missing) - whole
        typer.echo(f"{left} runs are missing; the rest is kept: go on with --continue", err=True)
        raise typer.Exit(1 if failures else _INTERRUPTED)
    return {key: figures for key, figures in found.items() if figures is not None}


def _name(order: Order) -> str:
    """Of a file: letters, digits and hyphens, unlike that of any other run."""
    variant, policy, setting, seed = order.key
    words = "".join(sign if sign.isalnum() else "-" for sign in f"{policy}-{variant}").split("-")
    return "-".join([*filter(None, words), setting, str(seed)])
