"""What people and probes ask: health, metrics, the state, and why a pod is where it is."""

from typing import Any

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from scheduler.cluster.errors import ClusterError
from scheduler.extender.pods import describe
from scheduler.extender.routes import ProblemDetail
from scheduler.extender.scheduling import RefusedError
from scheduler.extender.service import Service
from scheduler.metrics import CONTENT_TYPE
from scheduler.model.documents import to_manifest
from scheduler.model.pod import PodError, grant_of

_TRIED_NODES_MAX = 2_000  # an explanation is for a person; beyond that the counts alone are given


def health_router(service: Service) -> APIRouter:
    """The routes of probes and scrapes, which tell nothing of single pods."""
    routes = APIRouter(tags=["looking"])

    @routes.get(
        "/healthz", responses={503: {"model": ProblemDetail, "description": "it must be replaced"}}
    )
    async def healthz() -> dict[str, str]:
        """Whether the process lives, and all of it."""
        if service.death:
            raise HTTPException(503, service.death)
        return {"status": "ok"}

    @routes.get(
        "/readyz", responses={503: {"model": ProblemDetail, "description": "not ready: why"}}
    )
    async def readyz() -> dict[str, str]:
        """Whether it may answer kube-scheduler."""
        if why := service.unreadiness():
            raise HTTPException(503, why)
        return {"status": "ok"}

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> StreamingResponse:
        """All series, in Prometheus' text format."""
        service.refresh_gauges()
        fleet, limits = service.state.ledger.fleet, service.settings.limits
        return StreamingResponse(service.metrics.exposition(fleet, limits), media_type=CONTENT_TYPE)

    return routes


def router(service: Service) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(tags=["looking"])
    routes.include_router(health_router(service))

    @routes.get("/v1/snapshot", response_model=dict[str, Any])
    async def snapshot() -> Response:
        """The whole state: documents, nodes, GPUs and who holds what."""
        state = service.state
        catalogue = state.catalogue
        told = {
            "time": state.clock(),
            "ready": not service.unreadiness(),
            "settings": service.settings.model_dump(mode="json"),
            "workflows": [to_manifest(w) for w in catalogue.workflows.values()],
            "profiles": [to_manifest(p) for p in catalogue.profiles.values()],
            "nodes": state.ledger.snapshot(),
            "waiting": [f"{known.namespace}/{known.name}" for known in state.waiting.values()],
        }
        return _json(told)

    @routes.get(
        "/v1/explain/{namespace}/{pod}",
        response_model=dict[str, Any],
        responses={
            404: {"model": ProblemDetail, "description": "no such pod"},
            502: {"model": ProblemDetail, "description": "the API server could not be asked"},
        },
    )
    async def explain(namespace: str, pod: str) -> Response:
        """A pod's plan, the candidates in order, and what every node says to them."""
        try:
            raw = await service.link.get_pod(namespace, pod)
        except ClusterError as error:
            raise HTTPException(502, str(error)) from None
        if raw is None:
            raise HTTPException(404, f"there is no pod {namespace}/{pod}")
        return _json(explanation(service, raw))

    return routes


def _json(told: dict[str, Any]) -> Response:
    """Much faster on a large state than FastAPI's own way; null where JSON has no number."""
    return Response(to_json(told, inf_nan_mode="null"), media_type="application/json")


def explanation(service: Service, raw: dict[str, Any]) -> dict[str, Any]:
    """What there is to say of a pod: its grant, or else what would be granted now."""
    known = describe(raw)
    told: dict[str, Any] = {"pod": f"{known.namespace}/{known.name}", "uid": known.uid}
    node = (raw.get("spec") or {}).get("nodeName")
    if node:
        return told | {"node": node} | _granted(raw)
    if known.pod is None:
        return told | {"ours": bool(known.problem), "error": known.problem}
    try:
        service.ready_or_refuse()
        decision = service.decider.decide(known.pod, service.state.ledger.node_names())
    except RefusedError as error:
        return told | {"ours": True, "error": str(error)}
    refusals = service.decider.refusals(decision)
    counts: dict[str, int] = {}
    for refusal in refusals.values():
        counts[refusal.reason] = counts.get(refusal.reason, 0) + 1
    return told | {
        "ours": True,
        "error": "",
        "plan": decision.plan.as_json() | {"exact": decision.plan.exact},
        "deciding_candidate": decision.placing.chosen,
        "nodes_that_hold_it": decision.passing()[:_TRIED_NODES_MAX],
        "nodes_that_refuse": {
            name: refusal.reason for name, refusal in list(refusals.items())[:_TRIED_NODES_MAX]
        },
        "reasons": counts,
    }


def _granted(raw: dict[str, Any]) -> dict[str, Any]:
    try:
        grant = grant_of(raw)
    except PodError as error:
        return {"granted": None, "error": str(error)}
    if grant is None:
        return {"granted": None, "error": ""}
    return {
        "granted": {
            "gpu": grant.gpu_uuid,
            "gpu_percent": grant.gpu_percent,
            "memory_mib": grant.memory_mib,
            "batch": grant.batch,
            "plan": dict(grant.plan),
        },
        "error": "",
    }
