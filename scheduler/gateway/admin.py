"""Administration of the gateway, on the health port: probes, metrics, queues and pods."""

import asyncio
from collections.abc import AsyncIterator

from prometheus_client import generate_latest

from scheduler.gateway.service import GatewayService
from scheduler.server.health_server import HealthServer, HealthSource


def admin_server(service: GatewayService) -> HealthServer:
    """Open the port of ``ESG_HEALTH_PORT`` over a service.

    ``/v1/queues`` has rows that wait, pods of each function, and what is not used and why.

    Raises:
        ListenError: the address is in use, or does not belong to this machine.
    """

    async def exposition() -> AsyncIterator[bytes]:
        service.refresh_gauges()
        # A hundred workflows are some ten thousand series, and requests go on meanwhile.
        yield await asyncio.to_thread(generate_latest, service.metrics.registry)

    source = HealthSource(
        fatal_error=lambda: service.fatal_error,
        not_ready_reason=service.not_ready_reason,
        exposition=exposition,
        documents={"/v1/queues": service.queues},
    )
    settings = service.settings
    return HealthServer(
        source, (settings.health_host, settings.health_port or 0), service.note_exit
    )
