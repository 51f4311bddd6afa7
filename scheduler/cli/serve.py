"""``esg serve``: the service, over a real cluster or an embedded one."""

import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvicorn
import uvloop
from fastapi import APIRouter, FastAPI

from scheduler.cli.environment import Kubeconfig
from scheduler.cli.logs import configure_logging
from scheduler.cli.reading import read_nodes, read_settings, read_sound
from scheduler.cluster.api import connect
from scheduler.cluster.link import ClusterLink, Handlers, LiveCluster
from scheduler.extender import embedded_service
from scheduler.extender.app import create_app
from scheduler.extender.health_server import observe_port
from scheduler.extender.service import Connect, Service, prepare_kernels
from scheduler.model.node import NodeError
from scheduler.server.secondary import beside
from scheduler.server.sockets import ListenError, listening, url_of
from scheduler.settings import Settings
from scheduler.webhook.certificates import CertificateError
from scheduler.webhook.server import Webhook

log = structlog.get_logger(__name__)


def serve(
    embedded: Annotated[
        Path | None,
        typer.Option(help="Node documents: serve over a cluster in memory made of them"),
    ] = None,
    profiles: Annotated[
        Path | None, typer.Option(help="Workflows and FunctionProfiles for the embedded cluster")
    ] = None,
    kubeconfig: Kubeconfig = None,
    host: Annotated[str | None, typer.Option(help="address to listen on (ESG_HOST)")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="port (ESG_PORT)")] = None,
) -> None:
    """Serve filter, prioritize, bind and preempt to kube-scheduler."""
    given = {"host": host, "port": port}
    settings = read_settings(**{name: value for name, value in given.items() if value is not None})
    if embedded is not None:
        if profiles is None:
            raise typer.BadParameter(
                "--embedded wants --profiles too: there is no API server to ask"
            )
        service, routes = _embedded(settings, embedded, profiles)
        app = create_app(service)
        app.include_router(routes)
    else:
        service = Service(settings, connect=_live(kubeconfig))
        app = create_app(service)
    try:
        if settings.observe_port is not None:
            beside(app, observe_port(service).running)
        if settings.webhook_port is not None:
            beside(app, Webhook(service).running)
    except (CertificateError, ListenError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    configure_logging(settings.log_level, as_json=settings.log_json)
    run(app, service)


def run(app: FastAPI, service: Service) -> None:
    """Serve the application over the service until a signal ends it."""
    # What is there when it is ready for the first time, modules and most of the cluster, stays. The
    # cycle collector need not look at it again: at 5,000 nodes and 40,000 pods each of its full
    # passes stops the service for half a second, without that for 30 ms.
    service.on_ready = gc.freeze
    address = service.settings.host, service.settings.port
    try:
        listener = listening(address, "ESG_HOST, ESG_PORT", backlog=2048)
    except ListenError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    config = uvicorn.Config(
        app,
        http="httptools",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,  # kube-scheduler keeps its connections for 90 s between calls
    )
    log.info("listening", url=url_of(listener))
    uvloop.run(uvicorn.Server(config).serve(sockets=[listener]))


def warm_up() -> None:
    """Compile the kernels into Numba's cache, so that a later start loads them."""
    began = time.perf_counter()
    prepare_kernels()
    typer.echo(f"kernels are ready after {time.perf_counter() - began:.1f} s")


def _live(kubeconfig: Path | None) -> Connect:
    @asynccontextmanager
    async def connected(handlers: Handlers) -> AsyncIterator[ClusterLink]:
        async with connect(kubeconfig) as api:
            yield LiveCluster(api, handlers)

    return connected


def _embedded(settings: Settings, nodes: Path, profiles: Path) -> tuple[Service, APIRouter]:
    try:
        return embedded_service.embedded_service(settings, read_nodes(nodes), read_sound(profiles))
    except NodeError as error:
        raise typer.BadParameter(f"{nodes}: {error}") from None
