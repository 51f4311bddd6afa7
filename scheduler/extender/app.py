"""The extender's FastAPI application."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from scheduler import __version__
from scheduler.extender import debug_routes, routes
from scheduler.extender.service import Service


def create_app(service: Service) -> FastAPI:
    """Build the application over a running service."""
    app = FastAPI(title="esg-scheduler", version=__version__)
    app.include_router(routes.router(service))
    app.include_router(debug_routes.router(service))

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schema["components"]["schemas"] |= routes.request_schemas()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app
