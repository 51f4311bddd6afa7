"""``esg serve``: answer kube-scheduler's calls."""

import gc
import time
from pathlib import Path

import structlog
import typer
import uvicorn
from fastapi import FastAPI

from scheduler.cli.connection import live_cluster
from scheduler.cli.document_files import read_settings
from scheduler.cli.logs import configure_logging
from scheduler.extender.app import create_app
from scheduler.extender.health_server import health_server
from scheduler.extender.service import Service
from scheduler.planning.service import prepare_kernels
from scheduler.server import event_loop
from scheduler.server.bounded import KUBERNETES_KEEP_ALIVE_S, HeadLimitedProtocol
from scheduler.server.open_files import raise_open_files_limit
from scheduler.server.secondary import run_with
from scheduler.server.sockets import ListenError, listen, url_of

log = structlog.get_logger(__name__)


def serve_extender(kubeconfig: Path | None, *, host: str | None, port: int | None) -> None:
    """Run the extender and its health server until a signal ends them."""
    settings = read_settings(host=host, port=port)
    service = Service(settings, connect=live_cluster(kubeconfig, settings))
    app = create_app(service)
    try:
        if settings.health_port is not None:
            run_with(app, health_server(service).running)
    except ListenError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    configure_logging(settings.log_level, as_json=settings.log_json)
    run(app, service)


def run(app: FastAPI, service: Service) -> None:
    """Serve the application until a signal ends it."""
    # Objects that exist when the service becomes ready, modules and most of the cluster, are
    # long-lived. Freezing them keeps the cycle collector away: at 5,000 nodes and 40,000 pods a
    # full collection stops the service for half a second, after freezing for 30 ms.
    service.on_ready = gc.freeze
    raise_open_files_limit()
    address = service.settings.host, service.settings.port
    try:
        listener = listen(address, "ESG_HOST, ESG_PORT", backlog=2048)
    except ListenError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    config = uvicorn.Config(
        app,
        http=HeadLimitedProtocol,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KUBERNETES_KEEP_ALIVE_S,
    )
    log.info("listening", url=url_of(listener))
    event_loop.run(uvicorn.Server(config).serve(sockets=[listener]))


def compile_kernels() -> None:
    """Compile the kernels into Numba's cache and print the time."""
    started = time.perf_counter()
    prepare_kernels()
    typer.echo(f"kernels are ready after {time.perf_counter() - started:.1f} s")
