"""The webhook's server: TLS on its own port."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import structlog
import uvicorn

from scheduler.server.bounded import KUBERNETES_KEEP_ALIVE_S, BoundedServer, ClientLimits
from scheduler.server.certificates import Certificates
from scheduler.server.sockets import ListenError, listen
from scheduler.settings import Settings
from scheduler.webhook.admission import Admission
from scheduler.webhook.app import create_webhook
from scheduler.webhook.metrics import WebhookMetrics
from scheduler.webhook.mutation import PodDefaults

log = structlog.get_logger(__name__)

# One API server has at most 200 calls of mutating requests in flight by default.
LIMITS = ClientLimits(connections_max=1024, keep_alive_s=KUBERNETES_KEEP_ALIVE_S)


class Webhook:
    """The webhook; it listens from construction on, and answers in `running`.

    ``on_exit`` is called with the server's task when it has ended, for any reason.

    Raises:
        CertificateError: the certificate cannot be served.
        ListenError: the address is in use, or does not belong to this machine.
    """

    def __init__(
        self,
        admission: Admission,
        settings: Settings,
        metrics: WebhookMetrics,
        *,
        on_exit: "Callable[[asyncio.Task[None]], None]",
    ) -> None:
        self.certificates = Certificates(settings.tls_cert, settings.tls_key)
        metrics.certificate_ends.set_function(lambda: self.certificates.expires_at_s)
        self._on_exit = on_exit
        address = settings.webhook_host, settings.webhook_port
        try:
            self._socket = listen(address, "ESG_WEBHOOK_HOST, ESG_WEBHOOK_PORT", backlog=1024)
        except ListenError as error:
            raise ListenError(f"the webhook {error}") from None
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            create_webhook(admission, metrics),
            http="httptools",
            lifespan="off",
            log_level="warning",
            access_log=False,
            # s; an answer takes milliseconds. The wait is for clients that do not read.
            timeout_graceful_shutdown=2,
            ssl_context_factory=lambda _config, _default: self.certificates.context,
        )
        self._server = BoundedServer(config, LIMITS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer until the context exits."""
        log.info("webhook listens", port=self.port)
        following = asyncio.create_task(self.certificates.follow())
        try:
            async with self._server.running(self._socket, self._on_exit):
                yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def pod_defaults(settings: Settings) -> PodDefaults:
    """Read the settings that all pods share."""
    return PodDefaults(
        mps_root=settings.mps_root,
        mps_uid=settings.mps_uid or None,
        check_image=settings.mps_check_image,
        check_pull_secrets=tuple(filter(None, settings.check_pull_secrets.split(","))),
        runtime_class_name=settings.runtime_class_name,
        scheduler_name=settings.scheduler_name,
        resource_claims=settings.resource_claims,
        autoscaled=settings.autoscaled,
    )
