"""``esg gateway``: answer requests of workflows with the pods that serve their functions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import typer

from scheduler.cli.document_files import read_settings
from scheduler.cli.environment import from_environment
from scheduler.cli.logs import configure_logging
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.watches import Watched, Watches
from scheduler.gateway.process import run_gateway
from scheduler.gateway.service import ConnectWatches
from scheduler.gateway.settings import GatewaySettings
from scheduler.server import event_loop
from scheduler.server.certificates import CertificateError
from scheduler.server.sockets import ListenError


def serve_gateway(kubeconfig: Path | None) -> None:
    """Run the gateway until a signal ends it."""
    settings, gateway = read_settings(), from_environment(GatewaySettings)
    configure_logging(settings.log_level, as_json=settings.log_json)
    try:
        event_loop.run(run_gateway(settings, gateway, _live_watches(kubeconfig)))
    except (ListenError, CertificateError, ClusterConfigError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def _live_watches(kubeconfig: Path | None) -> ConnectWatches:
    @asynccontextmanager
    async def connected(watched: Watched) -> AsyncIterator[Watches]:
        async with connect(kubeconfig) as api:
            yield Watches(api, watched)

    return connected
