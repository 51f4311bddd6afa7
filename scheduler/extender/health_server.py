"""Health and metrics server, for the kubelet's probes and for Prometheus.

kube-scheduler calls the extender over the loopback, where no other pod of the cluster can have a
pod bound. Probes and scrapes come from outside, so they get a port of their own: it takes no
decision and shows nothing of single pods.
"""

from scheduler.extender.debug_routes import service_health_router
from scheduler.extender.service import Service
from scheduler.server.health import HEALTH_LIMITS, health_app
from scheduler.server.secondary import SecondaryServer


def health_server(service: Service) -> SecondaryServer:
    """Open the port of ``ESG_HEALTH_PORT`` over a service.

    Raises:
        ListenError: the address is in use, or is not one of this machine's.
    """
    return SecondaryServer(
        health_app("esg-scheduler", service_health_router(service)),
        label="the health server",
        address=(service.settings.health_host, service.settings.health_port or 0),
        variables="ESG_HEALTH_HOST, ESG_HEALTH_PORT",
        limits=HEALTH_LIMITS,
        on_exit=service.note_exit,
    )
