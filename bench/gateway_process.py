"""The gateway's HTTP data path as a process of its own, for the benchmark.

    python -m bench.gateway_process PORT SERVER_PORT

Front, runtime, metrics and the client of one model server, with one workflow of one stage: what a
replica runs, without Kubernetes.
"""

import asyncio
import gc
import signal
import sys
import time

import uvloop

from scheduler.cli.logs import configure_logging
from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http_front import HttpFront
from scheduler.gateway.http_limits import HttpLimits
from scheduler.gateway.http_server import serving_http
from scheduler.gateway.metrics import GatewayMetrics
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.pod_demand import PodDemand
from scheduler.gateway.runtime import Runtime
from scheduler.gateway.server_pods import ServerPod
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.function_server import FunctionServer
from scheduler.search.rules import Rules
from scheduler.server.sockets import listen

NAMESPACE = "default"
MODEL = "m"
BATCH = 8
SLOTS = 2
GPU_MODEL = "NVIDIA A100-SXM4-80GB"
LATENCY_MS = 1.0
SLO_MS = 60_000.0


def documents() -> tuple[FunctionProfile, Workflow, FunctionServer]:
    """Return a profile, its workflow of one stage and its server."""
    configurations = [
        {"batch": b, "cpu": 1, "gpuPercent": 100, "latencyMs": LATENCY_MS, "memoryMib": 100}
        for b in (1, 2, 4, BATCH)
    ]
    profile = {"gpus": [{"model": GPU_MODEL, "configurations": configurations}]}
    workflow = {"slo": {"latencyMs": SLO_MS}, "stages": [{"name": MODEL, "function": MODEL}]}
    server = {
        "function": MODEL,
        "selector": {"matchLabels": {"app": MODEL}},
        "protocol": "http-binary",
        "port": 8000,
        "slots": SLOTS,
    }
    metadata = {"name": MODEL, "namespace": NAMESPACE}
    return (
        FunctionProfile.model_validate({"metadata": {"name": MODEL}, "spec": profile}),
        Workflow.model_validate({"metadata": metadata, "spec": workflow}),
        FunctionServer.model_validate({"metadata": metadata, "spec": server}),
    )


def runtime(server_port: int) -> Runtime:
    """Return a runtime with one ready pod."""
    profile, workflow, server = documents()
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
    backend.add_pod(
        ServerPod(
            name=f"{NAMESPACE}/{MODEL}-0",
            uid="0",
            function=(NAMESPACE, MODEL),
            server=server.spec,
            host="127.0.0.1",
            gpu_model=GPU_MODEL,
            cpu=1,
            gpu_percent=100,
            memory_mib=1000,
            gpu="GPU-0",
            node="node",
            ready=True,
            draining=False,
        )
    )
    return backend


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
    uvloop.run(serve(*map(int, sys.argv[1:])))
