"""``esg serve``: run the service over a real or an embedded cluster."""

import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import typer
import uvicorn
import uvloop
from fastapi import FastAPI

from scheduler.cli.document_files import read_nodes, read_settings, read_sound
from scheduler.cli.logs import configure_logging
from scheduler.cluster.api import connect
from scheduler.cluster.link import ClusterLink, Handlers, LiveCluster
from scheduler.extender.app import create_app
from scheduler.extender.embedded_service import embedded_service
from scheduler.extender.health_server import health_server
from scheduler.extender.service import Connect, Service, prepare_kernels
from scheduler.model.node import NodeError
from scheduler.server.certificates import CertificateError
from scheduler.server.secondary import run_with
from scheduler.server.sockets import ListenError, listen, url_of
from scheduler.settings import Settings
from scheduler.webhook.admission import Admission
from scheduler.webhook.server import Webhook, pod_defaults

log = structlog.get_logger(__name__)


def serve_extender(
    *,
    embedded: Path | None,
    profiles: Path | None,
    kubeconfig: Path | None,
    host: str | None,
    port: int | None,
) -> None:
    """Run the extender and its secondary servers until a signal ends them."""
    settings = read_settings(host=host, port=port)
    if embedded is not None:
        if profiles is None:
            raise typer.BadParameter(
                "--embedded needs --profiles: an embedded cluster has no API server"
            )
        service: Service = _embedded(settings, embedded, profiles)
    else:
        service = Service(settings, connect=_live(kubeconfig))
    app = create_app(service)
    try:
        if settings.health_port is not None:
            run_with(app, health_server(service).running)
        if settings.webhook_port is not None:
            run_with(app, webhook_of(service).running)
    except (CertificateError, ListenError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    configure_logging(settings.log_level, as_json=settings.log_json)
    run(app, service)


def webhook_of(service: Service) -> Webhook:
    """Build the webhook of a service.

    Raises:
        CertificateError: the certificate cannot be served.
        ListenError: the address is in use, or does not belong to this machine.
    """
    settings = service.settings
    admission = Admission(
        planner=service.scheduler.plan_at_admission,
        prepared=service.wait_until_prepared,
        not_ready_reason=service.not_ready_reason,
        clock=service.state.clock,
        headroom_ratio=settings.ceiling_headroom_ratio,
        defaults=pod_defaults(settings),
    )
    return Webhook(admission, settings, service.metrics, on_exit=service.note_exit)


def run(app: FastAPI, service: Service) -> None:
    """Serve the application until a signal ends it."""
    # Objects that exist when the service becomes ready, modules and most of the cluster, are
    # long-lived. Freezing them keeps the cycle collector away: at 5,000 nodes and 40,000 pods a
    # full collection stops the service for half a second, after freezing for 30 ms.
    service.on_ready = gc.freeze
    address = service.settings.host, service.settings.port
    try:
        listener = listen(address, "ESG_HOST, ESG_PORT", backlog=2048)
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


def compile_kernels() -> None:
    """Compile the kernels into Numba's cache and print the time."""
    started = time.perf_counter()
    prepare_kernels()
    typer.echo(f"kernels are ready after {time.perf_counter() - started:.1f} s")


def _live(kubeconfig: Path | None) -> Connect:
    @asynccontextmanager
    async def connected(handlers: Handlers) -> AsyncIterator[ClusterLink]:
        async with connect(kubeconfig) as api:
            yield LiveCluster(api, handlers)

    return connected


def _embedded(settings: Settings, nodes: Path, profiles: Path) -> Service:
    try:
        return embedded_service(settings, read_nodes(nodes), read_sound(profiles))
    except NodeError as error:
        raise typer.BadParameter(f"{nodes}: {error}") from None
