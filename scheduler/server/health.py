"""Health routes: /healthz, /readyz and /metrics, as the kubelet and Prometheus call them.

They answer on the service's event loop: those of the agent and the gateway serve any client of the
cluster anyway. The loops of the extender and the webhook serve kube-scheduler and the API server
alone, so `scheduler.server.health_server` answers other clients there from a process of its own.
"""

from collections.abc import Callable

from fastapi import APIRouter, HTTPException, Response

from scheduler.server.messages import ProblemDetail


def health_router(
    *,
    fatal_error: Callable[[], str],
    not_ready_reason: Callable[[], str],
    exposition: Callable[[], Response],
) -> APIRouter:
    """Build the routes of probes and scrapes; they show nothing of single pods.

    Args:
        fatal_error: function that returns why the container must be restarted; empty while it need
            not be.
        not_ready_reason: function that returns why the container cannot serve now; empty when it
            can.
        exposition: function that returns all metrics in Prometheus' text format.
    """
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/healthz", responses={503: {"model": ProblemDetail, "description": "to be restarted"}}
    )
    async def healthz() -> dict[str, str]:
        """Liveness: 503 when the container must be restarted."""
        if reason := fatal_error():
            raise HTTPException(503, reason)
        return {"status": "ok"}

    @routes.get("/readyz", responses={503: {"model": ProblemDetail, "description": "not ready"}})
    async def readyz() -> dict[str, str]:
        """Readiness: 503 with the reason while it cannot serve."""
        if reason := not_ready_reason():
            raise HTTPException(503, reason)
        return {"status": "ok"}

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """All metrics in Prometheus' text format."""
        return exposition()

    return routes
