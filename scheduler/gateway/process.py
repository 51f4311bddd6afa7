"""The gateway's process: service, fronts and health server, and the signals that end them."""

import asyncio
import gc
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from scheduler.gateway.admin import admin_server
from scheduler.gateway.http.front import HttpFront, RequestRules
from scheduler.gateway.http.limits import HttpLimits
from scheduler.gateway.http.server import serving_http
from scheduler.gateway.service import MIB, GatewayService, Link
from scheduler.gateway.settings import GatewaySettings
from scheduler.server import event_loop
from scheduler.server.certificates import Certificates
from scheduler.server.sockets import listen, url_of
from scheduler.settings import Settings

log = structlog.get_logger(__name__)
FLUSH_S = 5.0
"""Time for clients to take their answers, after the last call has ended."""
SWITCH_S = 0.0005
"""Time after which a thread lets the event loop go on, a tenth of Python's own: long JSON is read
and metrics are rendered in threads, and the loop waits for the interpreter several times a call."""


async def run_gateway(settings: Settings, gateway: GatewaySettings, link: Link) -> None:
    """Serve until SIGTERM or SIGINT; then refuse new calls and answer those in progress.

    Raises:
        ListenError: an address cannot be listened on.
        CertificateError: the certificate cannot be served.
    """
    sys.setswitchinterval(SWITCH_S)
    stop = event_loop.stop_event()
    service = GatewayService(settings, gateway, link)
    health = None if settings.health_port is None else admin_server(service)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.running())
        if health is not None:
            await stack.enter_async_context(health.running())
        await stack.enter_async_context(_serving_http(service))
        if gateway.grpc_port is not None:
            await stack.enter_async_context(_serving_grpc(service, gateway.grpc_port))
        gc.freeze()  # what the imports have made stays: no collection has to look at it
        await stop.wait()
        await service.drain()


def _tls_context(
    gateway: GatewaySettings, stack: AsyncExitStack, protocols: Sequence[str] = ()
) -> ssl.SSLContext | None:
    """Return the context of the certificate, which follows its files; None without one."""
    if gateway.tls_cert is None:
        return None
    certificates = Certificates(gateway.tls_cert, gateway.tls_key)
    if protocols:
        certificates.context.set_alpn_protocols(protocols)
    following = asyncio.create_task(certificates.follow())
    stack.callback(following.cancel)
    return certificates.context


@asynccontextmanager
async def _serving_http(service: GatewayService) -> AsyncIterator[None]:
    gateway = service.gateway
    async with AsyncExitStack() as stack:
        tls = _tls_context(gateway, stack)
        listener = listen((gateway.host, gateway.port), "ESG_GATEWAY_HOST, ESG_GATEWAY_PORT")
        replicas = service.replicas
        front = HttpFront(
            service.backend,
            rules=RequestRules(gateway.json_max_mib * MIB, gateway.trust_arrival),
            forwarded=None if replicas is None else replicas.forwarded,
            namespace=gateway.default_namespace,
            access=service.access,
            on_refused=service.metrics.front_refused,
        )
        limits = HttpLimits(
            body_bytes=gateway.body_max_mib * MIB,
            connections=gateway.connections_max,
            drain_s=FLUSH_S,
        )
        log.info("listening", url=url_of(listener), tls=tls is not None)
        await stack.enter_async_context(
            serving_http(front, listener, memory=service.memory, limits=limits, tls=tls)
        )
        yield


@asynccontextmanager
async def _serving_grpc(service: GatewayService, port: int) -> AsyncIterator[None]:
    # A gateway without gRPC does not need h2.
    from scheduler.gateway.grpc.front import GrpcFront  # noqa: PLC0415
    from scheduler.gateway.grpc.limits import GrpcLimits  # noqa: PLC0415
    from scheduler.gateway.grpc.server import ALPN, serving_grpc  # noqa: PLC0415

    gateway = service.gateway
    async with AsyncExitStack() as stack:
        tls = _tls_context(gateway, stack, ALPN)
        listener = listen((gateway.host, port), "ESG_GATEWAY_HOST, ESG_GATEWAY_GRPC_PORT")
        front = GrpcFront(
            service.backend,
            namespace=gateway.default_namespace,
            access=service.access,
            on_refused=service.metrics.front_refused,
        )
        limits = GrpcLimits(
            message_bytes=gateway.body_max_mib * MIB,
            connections=gateway.grpc_connections_max,
            calls=gateway.connections_max,
            drain_s=FLUSH_S,
        )
        grpc_port = listener.getsockname()[1]
        log.info("listening", protocol="grpc", port=grpc_port, tls=tls is not None)
        await stack.enter_async_context(
            serving_grpc(front, listener, memory=service.memory, limits=limits, tls=tls)
        )
        yield
