"""Administration of the gateway, on the health port: probes, metrics, queues, pods, late calls."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from pydantic_core import to_json

from scheduler.gateway import call_report
from scheduler.gateway.page_history import PERIOD_S
from scheduler.gateway.page_report import PageReport
from scheduler.gateway.service import GatewayService
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.state_report import queues, refresh_gauges, simulated_cluster
from scheduler.server.background import repeat
from scheduler.server.health_server import HealthServer, HealthSource

_LATE_MAX = 100  # late requests of one answer
_LINES = 200  # ends of calls rendered per turn of the event loop


def late_requests(runtime: Runtime) -> list[dict[str, Any]]:
    """Describe the last late requests in one line each, the newest first."""
    offset_ms = runtime.unix_offset_ms()
    return call_report.newest(runtime.traces.newest_first(), _LATE_MAX, unix_offset_ms=offset_ms)


def request_report(runtime: Runtime, identifier: str) -> dict[str, Any] | None:
    """Describe the stages of a request; None: it is not known, or not any more."""
    trace = runtime.traces.find(identifier)
    if trace is None:
        return None
    return call_report.report(trace, unix_offset_ms=runtime.unix_offset_ms())


async def recent_calls(runtime: Runtime) -> AsyncIterator[bytes]:
    """Yield the ends of the last calls and batches, a list of `CallLog.lines`."""
    lines = runtime.call_log.lines(runtime.unix_offset_ms())
    separator = b"["
    while part := list(islice(lines, _LINES)):
        yield separator + to_json(part)[1:-1]
        separator = b","
        await asyncio.sleep(0)
    yield b"]" if separator == b"," else b"[]"


def run_times_report(runtime: Runtime, function: str) -> dict[str, Any] | None:
    """Describe run times of a function, relative to its profile, by namespace; None: unknown."""
    states = {
        namespace: state
        for (namespace, name), state in runtime.dispatcher.functions.items()
        if name == function
    }
    if not states:
        return None
    return {
        "spec_sha256": next(iter(states.values())).pool.profile.spec_sha256,
        "namespaces": {
            namespace: {"runs": state.run_times.runs, **state.run_times.correction._asdict()}
            for namespace, state in states.items()
        },
    }


def admin_server(service: GatewayService) -> HealthServer:
    """Open the port of ``ESG_HEALTH_PORT`` over a service.

    ``/v1/queues`` has rows that wait, pods of each function, and what is not used and why.
    With ``ESG_PAGE`` it has the live page, whose figures are those of ``/v1/overview``.
    ``/v1/requests`` has the last late requests, and ``/v1/requests/ID`` the stages of one.
    For `esg calibrate`, ``/v1/calls`` has the ends of the last calls and batches, and
    ``/v1/cluster`` nodes and settings.
    ``/v1/run-times/FUNCTION`` has the correction of the function's profile in each namespace.

    Raises:
        ListenError: the address is in use, or does not belong to this machine.
    """

    async def exposition(
        render: Callable[[CollectorRegistry], bytes] = generate_latest,
    ) -> AsyncIterator[bytes]:
        await service.cost_limits.update()
        refresh_gauges(service)
        # A hundred workflows are some ten thousand series, and requests go on meanwhile.
        yield await asyncio.to_thread(render, service.metrics.registry)

    documents: dict[str, Callable[[], Any]] = {
        "/v1/queues": partial(queues, service),
        "/v1/requests": partial(late_requests, service.runtime),
        "/v1/cluster": partial(simulated_cluster, service),
    }
    settings = service.settings
    if settings.page:
        page = PageReport(service)
        documents["/v1/overview"] = page.overview
        service.works.append(lambda: repeat(page.sample, PERIOD_S))
    source = HealthSource(
        fatal_error=lambda: service.fatal_error,
        not_ready_reason=service.not_ready_reason,
        exposition=exposition,
        # All names are valid; other ways to escape them read each letter.
        open_metrics=lambda: exposition(partial(generate_open_metrics, escaping=ALLOWUTF8)),
        documents=documents,
        lookups={
            "/v1/requests/": partial(request_report, service.runtime),
            "/v1/run-times/": partial(run_times_report, service.runtime),
        },
        reports={"/v1/calls": partial(recent_calls, service.runtime)},
        has_page=settings.page,
        upstream=service.gateway.extender_url,
    )
    return HealthServer(
        source, (settings.health_host, settings.health_port or 0), service.note_exit
    )
