"""Routes for people and probes: health, metrics, snapshot and explanations."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from scheduler.cluster.errors import ClusterError
from scheduler.extender import explanation
from scheduler.extender.service import Service
from scheduler.extender.snapshot import take_snapshot
from scheduler.server.health_process import CONTENT_TYPE
from scheduler.server.messages import ProblemDetail


def exposition(service: Service) -> AsyncIterator[bytes]:
    """Render the metrics of a service in Prometheus' text format, in parts."""
    service.refresh_gauges()
    ledger = service.state.ledger
    return service.metrics.exposition(ledger.fleet, ledger.limits, ledger.pools.slices())


def health_router(service: Service) -> APIRouter:
    """Build the routes of probes and scrapes, as the kubelet and Prometheus call them."""
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/healthz", responses={503: {"model": ProblemDetail, "description": "to be restarted"}}
    )
    async def healthz() -> dict[str, str]:
        """Liveness: 503 when the container must be restarted."""
        if reason := service.planning.fatal_error:
            raise HTTPException(503, reason)
        return {"status": "ok"}

    @routes.get("/readyz", responses={503: {"model": ProblemDetail, "description": "not ready"}})
    async def readyz() -> dict[str, str]:
        """Readiness: 503 with the reason while it cannot serve."""
        if reason := service.planning.not_ready_reason():
            raise HTTPException(503, reason)
        return {"status": "ok"}

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """All metrics in Prometheus' text format."""
        return StreamingResponse(exposition(service), media_type=CONTENT_TYPE)

    return routes


def router(service: Service) -> APIRouter:
    """Build the read-only routes of pods and of the whole state."""
    routes = APIRouter(tags=["debug"])

    @routes.get("/v1/snapshot", response_model=dict[str, Any])
    async def snapshot() -> Response:
        """The whole state: settings, documents, nodes, reservations and pending pods."""
        ready = not service.planning.not_ready_reason()
        return _json(take_snapshot(service.state) | {"ready": ready})

    @routes.get(
        "/v1/explain/{namespace}/{pod}",
        response_model=dict[str, Any],
        responses={
            404: {"model": ProblemDetail, "description": "no such pod"},
            502: {"model": ProblemDetail, "description": "the API server did not answer"},
        },
    )
    async def explain(namespace: str, pod: str) -> Response:
        """A pod's grant; or its plan, the candidates in order, and the answer of every node."""
        try:
            raw = await service.link.get_pod(namespace, pod)
        except ClusterError as error:
            raise HTTPException(502, str(error)) from None
        if raw is None:
            raise HTTPException(404, f"there is no pod {namespace}/{pod}")
        await service.prepared_pod(raw)
        nodes = service.state.ledger.node_names()
        return _json(
            explanation.explain(service.scheduler, raw, nodes, require_ready=service.require_ready)
        )

    return routes


def _json(content: dict[str, Any]) -> Response:
    """Serialise much faster than FastAPI on a large state; null where JSON has no number."""
    return Response(to_json(content, inf_nan_mode="null"), media_type="application/json")
