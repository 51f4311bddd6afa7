"""Plan of a workflow as a new request would get it now, for the live page."""

import asyncio
from typing import Any, Final

from scheduler.extender.service import Service
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.search.cost_curves import curves
from scheduler.search.planned_stage import planned_stage
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.settings import Settings

_CURVE_SAMPLES: Final = 32


async def plan_report(service: Service, name: str) -> dict[str, Any] | None:
    """Plan a workflow by ``NAMESPACE:NAME`` on the cluster's GPUs; None: there is none.

    The search runs in a thread, for a large workflow may take long, over documents of its own. The
    health process asks for one at a time.
    """
    namespace, _, workflow_name = name.partition(":")
    documents = service.state.documents.catalogue
    workflow = documents.workflows.get((namespace, workflow_name))
    if workflow is None:
        return None
    functions = {stage.function for stage in workflow.spec.stages}
    profiles = {f: documents.profiles[f] for f in functions & documents.profiles.keys()}
    catalogue = Catalogue({workflow.key: workflow}, profiles)
    fleet = service.scheduler.planner.fleet()
    return await asyncio.to_thread(_plan, workflow, catalogue, service.settings, fleet)


def _plan(
    workflow: Workflow, catalogue: Catalogue, settings: Settings, fleet: FleetCapacity | None
) -> dict[str, Any]:
    request = PlanRequest(
        namespace=workflow.key[0],
        workflow=workflow.key[1],
        stage=next(stage.name for stage in workflow.spec.stages if not stage.after),
        fleet=fleet,
        margin_ratio=settings.margin_ratio,
        k=settings.candidates,
    )
    report: dict[str, Any] = {"workflow": "/".join(workflow.key), "error": ""}
    try:
        planned = planned_stage(Planner(catalogue, settings.rules), request, workflow)
        lines = curves(catalogue, settings.rules, request, samples=_CURVE_SAMPLES)
    except (UnknownDocumentError, PlanningError) as error:
        return report | {"error": str(error)}
    return report | {
        "stage": planned.stage,
        "slo_ms": planned.slo_ms,
        "slack_ms": planned.slack_ms,
        "path_ms": planned.completion.path_ms,
        "cost": planned.completion.cost_dollars,
        "covers_workflow": planned.covers_workflow,
        "remarks": planned.remarks(),
        "models": sorted(fleet.models) if fleet else [],
        "curves": [{"name": line.name, "points": line.points} for line in lines],
        **planned.as_json(),
    }
