"""Administration of the gateway, on the health port: probes, metrics, queues and pods."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from prometheus_client import generate_latest

from scheduler.gateway.service import GatewayService
from scheduler.server.health import health_app, health_router
from scheduler.server.health_process import CONTENT_TYPE, HEALTH_LIMITS
from scheduler.server.secondary import SecondaryServer


def admin_server(service: GatewayService) -> SecondaryServer:
    """Open the port of ``ESG_HEALTH_PORT`` over a service.

    Raises:
        ListenError: the address is in use, or is not one of this machine's.
    """

    async def text() -> AsyncIterator[bytes]:
        service.refresh_gauges()
        # A hundred workflows are some ten thousand series, and requests go on meanwhile.
        yield await asyncio.to_thread(generate_latest, service.metrics.registry)

    def exposition() -> Response:
        return StreamingResponse(text(), media_type=CONTENT_TYPE)

    routes = APIRouter()
    routes.include_router(
        health_router(
            fatal_error=lambda: service.fatal_error,
            not_ready_reason=service.not_ready_reason,
            exposition=exposition,
        )
    )

    @routes.get("/v1/queues")
    async def queues() -> dict[str, Any]:
        """Rows that wait, pods of each function, and what is not used and why."""
        return service.queues()

    return SecondaryServer(
        health_app("esg-scheduler gateway", routes),
        label="the health server",
        address=(service.settings.health_host, service.settings.health_port or 0),
        variables="ESG_HEALTH_HOST, ESG_HEALTH_PORT",
        limits=HEALTH_LIMITS,
        on_exit=service.note_exit,
    )
