"""The webhook's server: TLS on its own port, in the extender's process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from scheduler.metrics import Metrics
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod
from scheduler.server.certificates import Certificates
from scheduler.server.secondary import SecondaryServer
from scheduler.settings import Settings
from scheduler.webhook.admission import Admission
from scheduler.webhook.app import create_webhook
from scheduler.webhook.mutation import PodDefaults


class AdmissionPlanner(Protocol):
    """Plans a pod at admission."""

    def plan_at_admission(self, pod: FunctionPod) -> Plan:
        """Compute the candidates for the pod; raises a RefusedError where there are none."""


class ClockOwner(Protocol):
    """Has the clock of the service: seconds since the epoch."""

    clock: Callable[[], float]


class PlanningService(Protocol):
    """The service that the webhook runs in."""

    settings: Settings
    metrics: Metrics

    @property
    def scheduler(self) -> AdmissionPlanner:
        """The planner."""

    @property
    def state(self) -> ClockOwner:
        """The owner of the clock."""

    def not_ready_reason(self) -> str:
        """Reason why nothing can be planned now; empty when it can."""

    def note_exit(self, task: "asyncio.Task[None]") -> None:
        """Note that a background task ended."""


class Webhook:
    """The webhook of a service; it listens from construction on, and answers in `running`.

    Raises:
        CertificateError: the certificate cannot be served.
        ListenError: the address is in use, or does not belong to this machine.
    """

    def __init__(self, service: PlanningService) -> None:
        settings = service.settings
        self.certificates = Certificates(settings.tls_cert, settings.tls_key)
        service.metrics.certificate_ends.set_function(lambda: self.certificates.expires_at_s)
        self._side = SecondaryServer(
            create_webhook(admission(service), settings, service.metrics),
            label="the webhook",
            address=(settings.webhook_host, settings.webhook_port or 0),
            variables="ESG_WEBHOOK_HOST, ESG_WEBHOOK_PORT",
            on_exit=service.note_exit,
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


def admission(service: PlanningService) -> Admission:
    """Create the admission of a service."""
    return Admission(
        planner=service.scheduler.plan_at_admission,
        not_ready_reason=service.not_ready_reason,
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
