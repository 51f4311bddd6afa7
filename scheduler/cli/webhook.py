"""``esg webhook``: admit function pods, in a process that serves nothing else."""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
import typer

from scheduler.cli.connection import live_cluster
from scheduler.cli.document_files import read_settings
from scheduler.cli.logs import configure_logging
from scheduler.planning.service import PlanningService
from scheduler.server import event_loop
from scheduler.server.certificates import CertificateError
from scheduler.server.health_server import HealthServer, HealthSource
from scheduler.server.open_files import raise_open_files_limit
from scheduler.server.sockets import ListenError
from scheduler.webhook.admission import Admission
from scheduler.webhook.metrics import WebhookMetrics
from scheduler.webhook.server import Webhook, pod_defaults

log = structlog.get_logger(__name__)


def serve_webhook(kubeconfig: Path | None) -> None:
    """Run the webhook and its health server until a signal ends them."""
    settings = read_settings()
    service = PlanningService(settings, connect=live_cluster(kubeconfig))
    metrics = WebhookMetrics()
    try:
        webhook = webhook_of(service, metrics)
        health = None if settings.health_port is None else _health_server(service, metrics)
    except (CertificateError, ListenError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    configure_logging(settings.log_level, as_json=settings.log_json)
    raise_open_files_limit()
    service.on_ready = gc.freeze  # as in `esg serve`
    event_loop.run(_run(service, webhook, health))


def webhook_of(service: PlanningService, metrics: WebhookMetrics) -> Webhook:
    """Build the webhook over a service.

    Raises:
        CertificateError: the certificate cannot be served.
        ListenError: the address is in use, or does not belong to this machine.
    """
    settings = service.settings
    admission = Admission(
        planner=service.planner.plan_at_admission,
        prepared=service.wait_until_prepared,
        not_ready_reason=service.not_ready_reason,
        clock=service.state.clock,
        headroom_ratio=settings.ceiling_headroom_ratio,
        defaults=pod_defaults(settings),
    )
    return Webhook(admission, settings, metrics, on_exit=service.note_exit)


def _health_server(service: PlanningService, metrics: WebhookMetrics) -> HealthServer:
    async def exposition() -> AsyncIterator[bytes]:
        ready = not service.not_ready_reason()
        yield metrics.exposition(service.link.staleness_s(), ready=ready)

    source = HealthSource(
        fatal_error=lambda: service.fatal_error,
        not_ready_reason=service.not_ready_reason,
        exposition=exposition,
    )
    settings = service.settings
    return HealthServer(
        source, (settings.health_host, settings.health_port or 0), service.note_exit
    )


async def _run(service: PlanningService, webhook: Webhook, health: HealthServer | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as servers:
        await servers.enter_async_context(service.running())
        if health is not None:
            await servers.enter_async_context(health.running())
        await servers.enter_async_context(webhook.running())
        await stop.wait()
