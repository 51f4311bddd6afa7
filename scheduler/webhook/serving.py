"""The webhook's server: TLS on a port of its own, in the process and the loop of the extender.

It runs inside the lifespan of the extender's application, so the extender's server alone minds the
signals: uvicorn sets its handlers with `signal.signal`, and of two servers the second would take
them from the first. At the end the webhook stops before the service that it asks.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import structlog
import uvicorn
from fastapi import FastAPI

from scheduler.extender.deciding import RefusedError
from scheduler.extender.service import Service
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod
from scheduler.settings import Settings
from scheduler.webhook.admitting import Admission
from scheduler.webhook.app import create_webhook
from scheduler.webhook.certificates import Certificates
from scheduler.webhook.dressing import Wardrobe

log = structlog.get_logger(__name__)


class ListenError(Exception):
    """The webhook's address cannot be listened on; the message says which and why."""


class _Server(uvicorn.Server):
    """A server that leaves the signals to the one it runs beside."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Webhook:
    """The webhook of a service; it listens from the moment it is made, and answers while `running`.

    Raises:
        CertificateError: there is nothing to serve TLS with.
        ListenError: the address is taken, or not this machine's.
    """

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self.certificates = Certificates(settings.tls_cert, settings.tls_key)
        self._socket = _listening(settings.webhook_host, settings.webhook_port or 0)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            create_webhook(admission(service), settings, service.metrics),
            http="httptools",
            lifespan="off",
            log_level="warning",
            access_log=False,
            # s; a call takes milliseconds. What is waited for is the end of TLS on connections
            # whose client does not read.
            timeout_graceful_shutdown=2,
            ssl_context_factory=lambda _config, _default: self.certificates.context,
        )
        self._server = _Server(config)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer while inside."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        serving.add_done_callback(self._tell_death)
        following = asyncio.create_task(self.certificates.follow())
        log.info("the webhook listens", port=self.port)
        try:
            yield
        finally:
            following.cancel()
            self._server.should_exit = True
            await asyncio.gather(serving, following, return_exceptions=True)
            self._socket.close()

    def _tell_death(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the webhook died", exc_info=error)


def beside(app: FastAPI, webhook: Webhook) -> None:
    """Let the webhook run while ``app`` does, inside its lifespan."""
    own = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def both(app: FastAPI) -> AsyncIterator[None]:
        async with own(app), webhook.running():
            yield

    app.router.lifespan_context = both


def admission(service: Service) -> Admission:
    """Admission by what the service knows."""
    return Admission(
        planning=lambda pod: _plan(service, pod),
        unreadiness=service.unreadiness,
        clock=service.state.clock,
        headroom_ratio=service.settings.ceiling_headroom_ratio,
        wardrobe=wardrobe(service.settings),
    )


def wardrobe(settings: Settings) -> Wardrobe:
    """What the settings say of all pods."""
    return Wardrobe(
        mps_root=settings.mps_root,
        mps_uid=settings.mps_uid,
        scheduler_name=settings.scheduler_name,
    )


def _plan(service: Service, pod: FunctionPod) -> Plan:
    """The candidates on the GPU models that there are, for the largest node that has any.

    A ceiling above every node's vCPUs could be bound nowhere, though a smaller configuration
    could. Where the nodes there are leave none, they are not looked at: larger ones may come.
    """
    fleet = service.state.ledger.fleet
    models = frozenset(fleet.models) or None
    largest_milli = max((n.cpu_milli for n in fleet.nodes if n is not None and n.gpus), default=0)
    if pod.cpu_ceiling_milli is None and largest_milli > pod.cpu_beside_milli:
        fitting = replace(pod, cpu_ceiling_milli=largest_milli - pod.cpu_beside_milli)
        with contextlib.suppress(RefusedError):
            return service.decider.plan(fitting, models=models)
    return service.decider.plan(pod, models=models)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ListenError(
            f"the webhook cannot listen on {host} port {port} (ESG_WEBHOOK_HOST, "
            f"ESG_WEBHOOK_PORT): {error.strerror}"
        ) from None
