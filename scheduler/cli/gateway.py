"""``esg gateway``: answer requests of workflows with the pods that serve their functions."""

from pathlib import Path

from scheduler.cli.document_files import read_settings
from scheduler.cli.environment import from_environment
from scheduler.cli.failure import failing_on
from scheduler.cli.logs import configure_logging
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.watches import Watches
from scheduler.gateway.process import run_gateway
from scheduler.gateway.settings import GatewaySettings
from scheduler.server import event_loop
from scheduler.server.certificates import CertificateError
from scheduler.server.sockets import ListenError
from scheduler.settings import Settings


def serve_gateway(kubeconfig: Path | None) -> None:
    """Run the gateway until a signal ends it."""
    settings, gateway = read_settings(), from_environment(GatewaySettings)
    configure_logging(settings.log_level, as_json=settings.log_json)
    with failing_on(ListenError, CertificateError, ClusterConfigError):
        event_loop.run(_serve(settings, gateway, kubeconfig))


async def _serve(settings: Settings, gateway: GatewaySettings, kubeconfig: Path | None) -> None:
    async with connect(kubeconfig) as api:
        await run_gateway(settings, gateway, Watches(api))
