"""Health routes: /healthz, /readyz and /metrics, as the kubelet and Prometheus call them."""

from collections.abc import Callable

from fastapi import APIRouter, FastAPI, HTTPException, Response

from scheduler import __version__
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


def health_app(program: str, routes: APIRouter) -> FastAPI:
    """Build an application that has only the health routes of a program."""
    app = FastAPI(
        title=f"{program} health and metrics",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(routes)
    return app
