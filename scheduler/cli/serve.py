"""``esg serve``: answer kube-scheduler's calls."""

import gc
import time
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
import typer
import uvicorn

from scheduler.cli.document_files import read_settings
from scheduler.cli.failure import failing_on
from scheduler.cli.logs import configure_logging
from scheduler.cluster.api import connect
from scheduler.cluster.credentials import lease_namespace
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.link import LiveCluster
from scheduler.extender.app import create_app
from scheduler.extender.health_server import health_server
from scheduler.extender.service import Service
from scheduler.planning.service import PlanningService, prepare_kernels
from scheduler.server import event_loop
from scheduler.server.bounded import KUBERNETES_KEEP_ALIVE_S, HeadLimitedProtocol
from scheduler.server.open_files import raise_open_files_limit
from scheduler.server.sockets import ListenError, SignallessServer, listen, url_of
from scheduler.settings import Settings

log = structlog.get_logger(__name__)


def serve_extender(kubeconfig: Path | None, *, host: str | None, port: int | None) -> None:
    """Run the extender and its health server until a signal ends them."""
    settings = read_settings(host=host, port=port)
    configure_logging(settings.log_level, as_json=settings.log_json)
    raise_open_files_limit()
    with failing_on(ListenError, ClusterConfigError):
        event_loop.run(_serve(settings, kubeconfig))


async def _serve(settings: Settings, kubeconfig: Path | None) -> None:
    async with connect(kubeconfig) as api:
        link = LiveCluster(
            api,
            lease_namespace=lease_namespace(settings.owner_lease_namespace),
            lease_timeout_s=settings.api_timeout_s / 3,
            resource_claims=settings.resource_claims,
        )
        await run(Service(PlanningService(settings, link)))


async def run(service: Service) -> None:
    """Serve until SIGTERM or SIGINT; then answer the calls in progress.

    Raises:
        ListenError: an address is in use, or is not one of this machine's.
    """
    stop = event_loop.stop_event()
    settings = service.settings
    health = None if settings.health_port is None else health_server(service)
    listener = listen((settings.host, settings.port), "ESG_HOST, ESG_PORT", backlog=2048)
    config = uvicorn.Config(
        create_app(service),
        http=HeadLimitedProtocol,
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=KUBERNETES_KEEP_ALIVE_S,
    )
    # Objects that exist when the service becomes ready, modules and most of the cluster, are
    # long-lived. Freezing them keeps the cycle collector away: at 5,000 nodes and 40,000 pods a
    # full collection stops the service for half a second, after freezing for 30 ms.
    service.planning.on_ready = gc.freeze
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.running())
        if health is not None:
            await stack.enter_async_context(health.running())
        serving = SignallessServer(config).running(listener, service.planning.note_exit)
        await stack.enter_async_context(serving)
        log.info("listening", url=url_of(listener))
        await stop.wait()


def compile_kernels() -> None:
    """Compile the kernels into Numba's cache and print the CPU time, imports included."""
    prepare_kernels()
    typer.echo(f"kernels are ready after {time.process_time():.1f} s of CPU time")
