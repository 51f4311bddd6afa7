"""Health and metrics server, for the kubelet's probes and for Prometheus.

kube-scheduler calls the extender over the loopback, where no other pod of the cluster can have a
pod bound, and alone on the event loop. Probes and scrapes come from outside, so they get a port and
a process of their own: it takes no decision, and shows single pods only for the live page.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scheduler.extender.debug_routes import exposition
from scheduler.extender.gpu_report import gpu_report, pending_pod
from scheduler.extender.plan_report import plan_report
from scheduler.extender.service import Service
from scheduler.server.health_server import HealthServer, HealthSource


def health_server(service: Service) -> HealthServer:
    """Open the port of ``ESG_HEALTH_PORT`` over a service.

    Raises:
        ListenError: the address is in use, or is not one of this machine's.
    """
    planning = service.planning
    settings = service.settings
    page_lookups: Mapping[str, Callable[[str], Any]] = {
        "/v1/pending/": partial(pending_pod, service),
        "/v1/plans/": partial(plan_report, service),
    }
    source = HealthSource(
        fatal_error=lambda: planning.fatal_error,
        not_ready_reason=planning.not_ready_reason,
        exposition=lambda: exposition(service),
        lookups=page_lookups if settings.page else {},
        reports={"/v1/gpus": partial(gpu_report, service)} if settings.page else {},
    )
    return HealthServer(
        source, (settings.health_host, settings.health_port or 0), planning.note_exit
    )
