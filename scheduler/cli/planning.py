"""``esg plan``: the K candidates for a stage, as a table for people or as JSON for programs."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from scheduler.cli.reading import read_settings, read_sound
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import Workflow
from scheduler.model.plan import Plan
from scheduler.search.planner import Planner, PlanningError, PlanRequest


def plan(  # noqa: PLR0913, PLR0917 - each is an option of the command
    profiles: Annotated[
        Path, typer.Option(help="file or folder with Workflows and FunctionProfiles")
    ],
    workflow: Annotated[str, typer.Option(help="the workflow's name, or namespace/name")],
    stage: Annotated[str | None, typer.Option(help="its stage; default: its first")] = None,
    slack_ms: Annotated[
        float | None,
        typer.Option(help="time left for the stages left, ms; default: their share of the SLO"),
    ] = None,
    queued: Annotated[
        int | None, typer.Option(min=1, help="requests waiting: no larger batch is planned")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.000001, help="requests a second that the pod must serve")
    ] = None,
    gpu_model: Annotated[
        str | None, typer.Option(help="only this GPU model; default: all that are profiled")
    ] = None,
    k: Annotated[int, typer.Option(min=1, max=64, help="how many candidates")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,  # noqa: FBT002 - typer makes it a flag
) -> None:
    """Print the K cheapest configurations for a stage that keep the workflow within its SLO."""
    catalogue = Catalogue.of(read_sound(profiles))
    settings = read_settings()
    planner = Planner(catalogue, settings.rules)
    try:
        chosen = _workflow(catalogue, workflow)
        answer = planner.plan(
            PlanRequest(
                namespace=chosen.key[0],
                workflow=chosen.key[1],
                stage=stage or _first_stage(chosen),
                slack_ms=slack_ms,
                queued=queued,
                rate=rate,
                gpu_models=None if gpu_model is None else frozenset({gpu_model}),
                margin_ratio=settings.margin_ratio,
                k=k,
            )
        )
    except (UnknownDocumentError, PlanningError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(answer.as_json()))
    else:
        _print(answer, chosen, stage or _first_stage(chosen))


def _workflow(catalogue: Catalogue, name: str) -> Workflow:
    namespace, slash, bare = name.partition("/")
    if slash:
        return catalogue.workflow(namespace, bare)
    found = [workflow for key, workflow in catalogue.workflows.items() if key[1] == name]
    if len(found) > 1:
        listed = ", ".join("/".join(workflow.key) for workflow in found)
        raise UnknownDocumentError(
            f"the workflow {name} is in several namespaces: {listed}; name one"
        )
    return found[0] if found else catalogue.workflow("default", name)


def _first_stage(workflow: Workflow) -> str:
    return next(stage.name for stage in workflow.spec.stages if not stage.after)


def _print(answer: Plan, workflow: Workflow, stage: str) -> None:
    budget = "no budget" if answer.budget_ms is None else f"{answer.budget_ms:,.1f} ms left"
    table = Table(title=f"{'/'.join(workflow.key)}, stage {stage}: {budget}")
    for column in ("batch", "vCPU", "GPU %", "MiB", "stage ms", "path ms", "$ per 1,000 requests"):
        table.add_column(column, justify="right")
    table.add_column("GPU model")
    for candidate in answer.candidates:
        c = candidate.configuration
        table.add_row(
            str(c.batch),
            str(c.cpu),
            str(c.gpu_percent),
            f"{c.memory_mib:,}",
            f"{candidate.stage_ms:,.1f}",
            f"{candidate.path_ms:,.1f}",
            f"{candidate.path_cost * 1000:.4f}",
            candidate.gpu_model,
        )
    console = Console(file=sys.stdout)
    console.print(table)
    if not answer.feasible:
        console.print("No configuration meets the budget: the SLO is lost, these come nearest.")
    if not answer.exact:
        console.print("The search ended at its budget of work: a cheaper plan may exist.")
