"""The extender's FastAPI application."""

from typing import Any

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from scheduler import __version__
from scheduler.extender import debug_routes, routes
from scheduler.extender.service import Service


class _Application(FastAPI):
    """FastAPI's application, with the calls of kube-scheduler below its layers.

    They have no dependencies, parameters or middleware, and the layers take half of the time that a
    call spends outside of the decision.

    Args:
        calls: routes of POST requests; each endpoint takes the request and returns the response.
    """

    def __init__(self, calls: APIRouter) -> None:
        super().__init__(title="esg-scheduler", version=__version__)
        self._calls = {
            route.path: route.endpoint for route in calls.routes if isinstance(route, APIRoute)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._calls.get(scope["path"]) if scope.get("method") == "POST" else None
        if call is None:
            await super().__call__(scope, receive, send)
            return
        try:
            response: Response = await call(Request(scope, receive))
        except HTTPException as error:
            response = JSONResponse({"detail": error.detail}, error.status_code)
        await response(scope, receive, send)


def create_app(service: Service) -> FastAPI:
    """Build the application over a running service."""
    calls = routes.router(service)
    app = _Application(calls)
    for router in (calls, debug_routes.health_router(service), debug_routes.router(service)):
        app.router.routes += router.routes

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schema["components"]["schemas"] |= routes.request_schemas()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app
