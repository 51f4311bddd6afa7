"""``esg plan``: a stage's plan, as tables for people, JSON for programs, or a page with plots."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from scheduler.cli.reading import read_settings, read_sound
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import Workflow
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.settings import Settings
from workbench.commands.plan_answers import as_json, facts, planned_stage
from workbench.commands.plan_curves import curves
from workbench.commands.plan_tables import print_tables
from workbench.reports.stage_page import stage_page
from workbench.reports.writing import MissingReportLibraryError


def plan(  # noqa: PLR0913 - each is an option of the command
    *,
    profiles: Annotated[
        Path, typer.Option(help="file or folder with Workflows and FunctionProfiles")
    ],
    workflow: Annotated[str, typer.Option(help="the workflow's name, or namespace/name")],
    stage: Annotated[str | None, typer.Option(help="its stage; default: its first")] = None,
    slack_ms: Annotated[
        float | None,
        typer.Option(help="time left for the stages left, ms; default: their share of the SLO"),
    ] = None,
    start_ms: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            help="cold start and transfer of the input on a kind of node, ms; repeatable, "
            "default: 0",
        ),
    ] = None,
    queued: Annotated[
        int | None, typer.Option(min=1, help="requests waiting: no larger batch is planned")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.000001, help="requests a second that the pod must serve")
    ] = None,
    cpu_max: Annotated[
        int | None, typer.Option(min=1, help="most vCPUs for the stage at hand")
    ] = None,
    gpu_percent_max: Annotated[
        int | None, typer.Option(min=1, help="most of a GPU for the stage at hand, percent")
    ] = None,
    memory_mib_max: Annotated[
        int | None, typer.Option(min=1, help="most GPU memory for the stage at hand, MiB")
    ] = None,
    gpu_model: Annotated[
        str | None, typer.Option(help="only this GPU model; default: all that are profiled")
    ] = None,
    policy: Annotated[
        Literal["exact", "esg"] | None,
        typer.Option(help="all stages left at once, or in groups (ESG_POLICY)"),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(min=1, max=32, help="most stages of a group, for esg (ESG_GROUP_SIZE)"),
    ] = None,
    latency: Annotated[
        Literal["mean", "p95"] | None,
        typer.Option(help="which of the profiles' times to plan with (ESG_LATENCY)"),
    ] = None,
    on_lost_slo: Annotated[
        Literal["fastest", "cheapest"] | None,
        typer.Option(help="what comes first when nothing meets the SLO (ESG_ON_LOST_SLO)"),
    ] = None,
    margin_ratio: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="by how much stages may run over their profile (ESG_MARGIN_RATIO)"
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(min=1, max=64, help="how many candidates (ESG_CANDIDATES)")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="write a page: what time costs, and the plan"),
    ] = None,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Print the K cheapest configurations for a stage, and the plan of all stages left.

    They keep the workflow within its SLO. What is not given comes from the ESG_… variables.
    """
    if slack_ms is not None and not math.isfinite(slack_ms):
        raise typer.BadParameter(f"{slack_ms} is no time", param_hint="--slack-ms")
    catalogue = Catalogue.of(read_sound(profiles))
    settings = _settings(
        policy=policy,
        group_size=group_size,
        latency=latency,
        on_lost_slo=on_lost_slo,
        margin_ratio=margin_ratio,
        candidates=k,
    )
    try:
        chosen = _workflow(catalogue, workflow)
        request = PlanRequest(
            namespace=chosen.key[0],
            workflow=chosen.key[1],
            stage=stage or _first_stage(chosen),
            slack_ms=slack_ms,
            queued=queued,
            rate=rate,
            cpu_max=cpu_max,
            gpu_percent_max=gpu_percent_max,
            memory_mib_max=memory_mib_max,
            gpu_models=None if gpu_model is None else frozenset({gpu_model}),
            starts_ms=tuple(dict.fromkeys(start_ms or [0.0])),
            margin_ratio=settings.margin_ratio,
            k=settings.candidates,
        )
        planned = planned_stage(Planner(catalogue, settings.rules), request, chosen)
        if plot is not None:
            costs = curves(catalogue, settings.rules, request)
            _write(plot, stage_page(planned, costs, facts(settings, request)))
    except (UnknownDocumentError, PlanningError, MissingReportLibraryError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    if to_json:
        typer.echo(json.dumps(as_json(planned)))
    else:
        print_tables(planned)


def _settings(**given: Any) -> Settings:
    return read_settings(**{name: value for name, value in given.items() if value is not None})


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


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        typer.echo(f"error: {path}: cannot be written: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"wrote {path}", err=True)
