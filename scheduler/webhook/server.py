"""The webhook's server: TLS on its own port, in the extender's process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from scheduler.extender.scheduling import RefusedError
from scheduler.extender.service import Service
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod
from scheduler.server.secondary import SecondaryServer
from scheduler.settings import Settings
from scheduler.webhook.admission import Admission
from scheduler.webhook.app import create_webhook
from scheduler.webhook.certificates import Certificates
from scheduler.webhook.mutation import PodDefaults


class Webhook:
    """The webhook of a service; it listens from construction on, and answers in `running`.

    Raises:
        CertificateError: the certificate cannot be served.
        ListenError: the address is in use, or does not belong to this machine.
    """

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self.certificates = Certificates(settings.tls_cert, settings.tls_key)
        service.metrics.certificate_ends.set_function(lambda: self.certificates.expires_at_s)
        self._side = SecondaryServer(
            create_webhook(admission(service), settings, service.metrics),
            what="the webhook",
            address=(settings.webhook_host, settings.webhook_port or 0),
            variables="ESG_WEBHOOK_HOST, ESG_WEBHOOK_PORT",
            died=service.note_end,
            ssl_context_factory=lambda _config, _default: self.certificates.context,
        )
        self.port = self._side.port

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer until the context exits."""
        following = asyncio.create_task(self.certificates.follow())
        try:
            async with self._side.running():
                yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def admission(service: Service) -> Admission:
    """Create the admission of a service."""
    return Admission(
        planner=lambda pod: _plan(service, pod),
        not_ready_reason=service.unreadiness,
        clock=service.state.clock,
        headroom_ratio=service.settings.ceiling_headroom_ratio,
        defaults=pod_defaults(service.settings),
    )


def pod_defaults(settings: Settings) -> PodDefaults:
    """Read the settings that all pods share."""
    return PodDefaults(
        mps_root=settings.mps_root,
        mps_uid=settings.mps_uid,
        check_image=settings.mps_check_image,
        scheduler_name=settings.scheduler_name,
    )


def _plan(service: Service, pod: FunctionPod) -> Plan:
    """Plan a pod for the GPU models of the cluster and its largest node with a GPU.

    A ceiling above every node's vCPUs could be bound nowhere, although a smaller configuration
    could. If no candidate fits the largest node, plan without that limit: larger nodes may join.
    """
    fleet = service.state.ledger.fleet
    models = frozenset(fleet.models) or None
    largest_milli = max((n.cpu_milli for n in fleet.nodes if n is not None and n.gpus), default=0)
    if pod.cpu_ceiling_milli is None and largest_milli > pod.other_containers_cpu_milli:
        fitting = replace(pod, cpu_ceiling_milli=largest_milli - pod.other_containers_cpu_milli)
        with contextlib.suppress(RefusedError):
            return service.decider.plan(fitting, models=models)
    return service.decider.plan(pod, models=models)
