"""The gateway's HTTP data path as a process of its own, for the benchmark.

    python -m bench.gateway_process PORT SERVER_PORT [--without-recording]

Front, runtime, metrics and the client of one model server, with one workflow of one stage: what a
replica runs, without Kubernetes. Without recording, neither traces of calls nor the last calls and
batches are kept; only a gateway that is not compiled can be changed so.
"""

import asyncio
import gc
import signal
import sys
import time
from unittest import mock

import uvloop

from scheduler.cli.logs import configure_logging
from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http.front import HttpFront
from scheduler.gateway.http.limits import HttpLimits
from scheduler.gateway.http.server import serving_http
from scheduler.gateway.metrics import GatewayMetrics
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.pod_demand import PodDemand
from scheduler.gateway.serving import batch_runner
from scheduler.gateway.serving.call_log import CallLog
from scheduler.gateway.serving.call_trace import TraceRing
from scheduler.gateway.serving.runtime import Runtime
from scheduler.search.rules import Rules
from scheduler.server.sockets import listen
from tests.gateway import ready_pods
from tests.gateway.ready_pods import MODEL
from workbench.profiles import builders as documents

FUNCTION = "m"
BATCHES = (1, 2, 4, 8)
SLOTS = 2
LATENCY_MS = 1.0
SLO_MS = 60_000.0


def runtime(server_port: int) -> Runtime:
    """Return a runtime with one ready pod."""
    profile = documents.profile(FUNCTION, {MODEL: [(b, 1, 100, LATENCY_MS) for b in BATCHES]})
    workflow = documents.graph({FUNCTION: [FUNCTION]}, name=FUNCTION, slo_ms=SLO_MS)
    server = ready_pods.server(FUNCTION, slots=SLOTS)
    rules = Rules()
    metrics = GatewayMetrics(rules.prices, PodDemand(time.monotonic))
    metrics.workflow_changed(None, workflow)
    backend = Runtime(
        rules,
        metrics,
        lambda pod: model_server("http-binary", pod.host, server_port),
        rows_max=100_000,
    )
    backend.set_profile(profile)
    backend.set_workflow(workflow)
    backend.set_server(server, profile)
    backend.add_pod(ready_pods.ready_pod(FUNCTION, 0, server.spec))
    return backend


class _NoRun:
    """In the place of `TracedRun`."""

    def __init__(self, _: object) -> None:
        self.ended_ms = 0.0
        self.error = ""


def _nothing(*_: object) -> None:
    """Record nothing."""


def stop_recording() -> None:
    """Take the recording of calls and batches out of the gateway.

    Raises:
        RuntimeError: the gateway is compiled.
    """
    if not batch_runner.__file__.endswith(".py"):
        raise RuntimeError("the gateway is compiled; leave out --project")
    mock.patch.object(batch_runner, "TracedRun", _NoRun).start()
    for place, name in ((CallLog, "call_ended"), (CallLog, "batch_ended"), (TraceRing, "takes")):
        mock.patch.object(place, name, _nothing).start()


async def serve(port: int, server_port: int) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    backend = runtime(server_port)
    serving = serving_http(
        HttpFront(backend),
        listen(("127.0.0.1", port), "PORT"),
        memory=BodyMemory(2**30),
        limits=HttpLimits(),
    )
    async with serving:
        await stop.wait()
    await backend.close()


if __name__ == "__main__":
    configure_logging("info", as_json=False)
    gc.freeze()
    if "--without-recording" in sys.argv:
        stop_recording()
    uvloop.run(serve(*map(int, sys.argv[1:3])))
