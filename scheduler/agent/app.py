"""The agent's server: /metrics, /healthz, /readyz; and the signals that end it."""

import asyncio
import signal
import socket

import structlog
import uvicorn
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from scheduler.agent.service import Agent
from scheduler.server.bounded import BoundedServer
from scheduler.server.health import health_app, health_router
from scheduler.server.health_process import HEALTH_LIMITS
from scheduler.server.sockets import url_of

log = structlog.get_logger(__name__)


def create_app(agent: Agent) -> FastAPI:
    """Create the application for probes and Prometheus."""

    def exposition() -> Response:
        text = generate_latest(agent.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return health_app(
        "esg-scheduler agent",
        health_router(
            fatal_error=agent.unhealthy_reason,
            not_ready_reason=agent.not_ready_reason,
            exposition=exposition,
        ),
    )


async def serve(agent: Agent, listener: socket.socket) -> None:
    """Run the agent and its server on ``listener``, until SIGTERM or SIGINT.

    Raises:
        ClusterConfigError: no usable API server, or no valid node name, is configured.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    config = uvicorn.Config(
        create_app(agent),
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,  # s; a scrape takes milliseconds
    )
    server = BoundedServer(config, HEALTH_LIMITS)
    log.info("listening", url=url_of(listener))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await agent.run(stop)
    finally:
        server.should_exit = True
        await serving
