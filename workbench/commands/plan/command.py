"""``esg plan``: the plan of a stage as tables, as JSON, or as a page with plots."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.document_files import read_settings, read_sound
from scheduler.cli.failure import fail, failing_on
from scheduler.cli.fleet_file import read_fleet
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.message_text import reason_of
from scheduler.search.cost_curves import curves
from scheduler.search.planned_stage import planned_stage
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.settings import Settings
from workbench.commands.plan.answers import facts
from workbench.commands.plan.tables import print_tables
from workbench.reports.renderer import MissingReportLibraryError
from workbench.reports.stage_page import stage_page


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of the command that define the plan; None leaves a value to its default.

    Attributes:
        rate_per_s: rate of requests that the pod must serve, per second.
        nodes: file with the Nodes of the cluster.
        settings: overrides of `Settings` by field name.
    """

    profiles: Path
    workflow: str
    stage: str | None
    slack_ms: float | None
    starts_ms: Sequence[float]
    queued: int | None
    rate_per_s: float | None
    cpu_max: int | None
    gpu_percent_max: int | None
    memory_mib_max: int | None
    gpu_model: str | None
    nodes: Path | None
    settings: Mapping[str, Any]


def print_plan(options: PlanOptions, *, plot: Path | None, to_json: bool) -> None:
    """Plan a stage; print tables or JSON, and write a page if ``plot`` names one."""
    if options.slack_ms is not None and not math.isfinite(options.slack_ms):
        raise typer.BadParameter(f"{options.slack_ms} is not finite", param_hint="--slack-ms")
    catalogue = Catalogue.of(read_sound(options.profiles))
    settings = read_settings(**options.settings)
    with failing_on(UnknownDocumentError, PlanningError, MissingReportLibraryError):
        workflow = _workflow(catalogue, options.workflow)
        request = _request(options, workflow, settings)
        planned = planned_stage(Planner(catalogue, settings.rules), request, workflow)
        if plot is not None:
            costs = curves(catalogue, settings.rules, request)
            _write(plot, stage_page(planned, costs, facts(settings, request, planned.margin_ratio)))
    if to_json:
        typer.echo(json.dumps(planned.as_json()))
    else:
        print_tables(planned)


def _request(options: PlanOptions, workflow: Workflow, settings: Settings) -> PlanRequest:
    return PlanRequest(
        namespace=workflow.key[0],
        workflow=workflow.key[1],
        stage=options.stage or _first_stage(workflow),
        slack_ms=options.slack_ms,
        queued=options.queued,
        rate_rps=options.rate_per_s,
        cpu_max=options.cpu_max,
        gpu_percent_max=options.gpu_percent_max,
        memory_mib_max=options.memory_mib_max,
        fleet=_fleet(options, settings),
        starts_ms=tuple(dict.fromkeys(options.starts_ms or [0.0])),
        margin_ratio=settings.margin_ratio,
        k=settings.candidates,
    )


def _fleet(options: PlanOptions, settings: Settings) -> FleetCapacity | None:
    """Return the nodes that the options name; None: any."""
    fleet = None if options.nodes is None else read_fleet(options.nodes, settings.limits)
    if options.gpu_model is None:
        return fleet
    if fleet is None:
        return FleetCapacity.of_models([options.gpu_model])
    if options.gpu_model not in fleet.models:
        raise PlanningError(
            f"{options.nodes}: no Node has a GPU of model {options.gpu_model}; there are "
            f"{', '.join(fleet.models)}"
        )
    sizes = ((options.gpu_model, size) for size in fleet.of_model(options.gpu_model))
    return FleetCapacity.of(sizes, fleet.percent_max)


def _workflow(catalogue: Catalogue, name: str) -> Workflow:
    namespace, slash, bare = name.partition("/")
    if slash:
        return catalogue.workflow(namespace, bare)
    namesakes = [workflow for key, workflow in catalogue.workflows.items() if key[1] == name]
    if len(namesakes) > 1:
        listed = ", ".join("/".join(workflow.key) for workflow in namesakes)
        raise UnknownDocumentError(
            f"several namespaces have a workflow {name}: {listed}; give namespace/name"
        )
    return namesakes[0] if namesakes else catalogue.workflow("default", name)


def _first_stage(workflow: Workflow) -> str:
    return next(stage.name for stage in workflow.spec.stages if not stage.after)


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        fail(f"{path}: cannot be written: {reason_of(error)}")
    typer.echo(f"wrote {path}", err=True)
