"""A port for those who only look: the kubelet's probes, and Prometheus.

kube-scheduler calls the extender over the loopback, where nobody else in the cluster can have a pod
bound. Probes and scrapes come from outside, so they get a port on which nothing can be decided, and
on which nothing is told of single pods.
"""

from fastapi import FastAPI

from scheduler import __version__
from scheduler.extender.debug_routes import health_router
from scheduler.extender.service import Service
from scheduler.server.secondary import SecondaryServer


def observe_port(service: Service) -> SecondaryServer:
    """The port of ``ESG_HEALTH_PORT`` over a service.

    Raises:
        ListenError: the address is taken, or not this machine's.
    """
    app = FastAPI(
        title="esg-scheduler health and metrics",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(health_router(service))
    return SecondaryServer(
        app,
        what="the observe port",
        address=(service.settings.health_host, service.settings.health_port or 0),
        variables="ESG_HEALTH_HOST, ESG_HEALTH_PORT",
        died=service.note_end,
    )
