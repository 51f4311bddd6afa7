"""``esg webhook``: admit function pods, in a process that serves nothing else."""

import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from scheduler.cli.document_files import read_settings
from scheduler.cli.failure import failing_on
from scheduler.cli.logs import configure_logging
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.link import LiveCluster
from scheduler.planning.service import PlanningService
from scheduler.server import event_loop
from scheduler.server.certificates import CertificateError
from scheduler.server.health_server import HealthServer, HealthSource
from scheduler.server.open_files import raise_open_files_limit
from scheduler.server.sockets import ListenError
from scheduler.settings import Settings
from scheduler.webhook.admission import Admission
from scheduler.webhook.metrics import WebhookMetrics
from scheduler.webhook.server import Webhook, pod_defaults


def serve_webhook(kubeconfig: Path | None) -> None:
    """Run the webhook and its health server until a signal ends them."""
    settings = read_settings()
    configure_logging(settings.log_level, as_json=settings.log_json)
    raise_open_files_limit()
    with failing_on(CertificateError, ListenError, ClusterConfigError):
        event_loop.run(_serve(settings, kubeconfig))


async def _serve(settings: Settings, kubeconfig: Path | None) -> None:
    stop = event_loop.stop_event()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(kubeconfig))
        planning = PlanningService(settings, LiveCluster(api))
        planning.on_ready = gc.freeze  # as in `esg serve`
        metrics = WebhookMetrics()
        webhook = webhook_of(planning, metrics)
        health = None if settings.health_port is None else _health_server(planning, metrics)
        await stack.enter_async_context(planning.running())
        if health is not None:
            await stack.enter_async_context(health.running())
        await stack.enter_async_context(webhook.running())
        await stop.wait()


def webhook_of(planning: PlanningService, metrics: WebhookMetrics) -> Webhook:
    """Build the webhook over a service.

    Raises:
        CertificateError: the certificate cannot be served.
        ListenError: the address is in use, or does not belong to this machine.
    """
    settings = planning.settings
    admission = Admission(
        planner=planning.planner.plan_at_admission,
        prepared=planning.wait_until_prepared,
        not_ready_reason=planning.not_ready_reason,
        clock=planning.state.clock,
        headroom_ratio=settings.ceiling_headroom_ratio,
        defaults=pod_defaults(settings),
    )
    return Webhook(admission, settings, metrics, on_exit=planning.note_exit)


def _health_server(planning: PlanningService, metrics: WebhookMetrics) -> HealthServer:
    async def exposition() -> AsyncIterator[bytes]:
        ready = not planning.not_ready_reason()
        yield metrics.exposition(planning.link.staleness_s(), ready=ready)

    source = HealthSource(
        fatal_error=lambda: planning.fatal_error,
        not_ready_reason=planning.not_ready_reason,
        exposition=exposition,
    )
    settings = planning.settings
    return HealthServer(
        source, (settings.health_host, settings.health_port or 0), planning.note_exit
    )
