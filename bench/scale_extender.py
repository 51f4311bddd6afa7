"""The extender at 15,000 nodes of 8 GPUs and 120,000 pods: calls, memory, lists at its start.

The service runs in a process of its own, as in ``bench.extender``, which sends one call at a time.
A pod is filter, prioritize and bind; its CPU time is that of the service's event loop, so that one
core places at most so many pods a second. The lists are what a start takes: pages of 500 objects,
parsed, trimmed and passed to the handlers, as the reflector does, without the API server's time.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any, cast

import numpy as np

from bench import synthetic_load
from bench.extender import CallTimes, SchedulerClient, TimedConnection
from bench.memory import memory_mib
from bench.service import documents, serving
from bench.simulator import peak_mib
from scheduler.cluster.api import Api
from scheduler.cluster.object_list import list_all
from scheduler.cluster.reflector import PAGE, Handler
from scheduler.cluster.resource import NODES, PODS, Resource
from scheduler.settings import Settings
from tests.extender.embedded_service import embedded_service
from workbench.cluster.process import free_port
from workbench.series.process_pool import process_pool

NODE_COUNT, GPUS = 15_000, 8
POD_COUNT = NODE_COUNT * GPUS  # half of the nodes are full
SAMPLE = 750  # nodes that kube-scheduler passes of so many, by default: 5 %
CALLS, WARM_UP = 500, 30
VERBS = ("filter", "prioritize", "bind")


def main() -> dict[str, float]:
    """Measure and print."""
    figures = listed()
    print(
        f"lists at the start: {NODE_COUNT:,} nodes {figures['nodes_list_s']:.1f} s of CPU time, "
        f"{POD_COUNT:,} pods {figures['pods_list_s']:.1f} s, "
        f"at most {figures['lists_peak_mib']:,.0f} MiB",
        flush=True,
    )
    gc.disable()  # the client's own collector must not count
    port = free_port()
    with serving(NODE_COUNT, GPUS, POD_COUNT, port, {"ESG_FILTER_NODES_MAX": "32"}) as service:
        client = SchedulerClient(TimedConnection(port), NODE_COUNT, service.pid)
        print("ms              filter               prioritize    bind   pods/s")
        print("names a call       p50      p99  CPU p99        p99     p99   of a core")
        for names in (SAMPLE, NODE_COUNT):
            figures |= _calls(client, service.pid, names)
        memory = memory_mib(service.pid)
    figures["extender_rss_mib"] = memory["VmRSS"]
    print(f"memory {memory['VmRSS']:,.0f} MiB, at most {memory['VmHWM']:,.0f}", flush=True)
    return figures


def _calls(client: SchedulerClient, pid: int, names: int) -> dict[str, float]:
    for _ in range(WARM_UP):
        client.place(names, CallTimes(), bind=True)
    times, before_s = CallTimes(), _cpu_s(pid)
    for _ in range(CALLS):
        client.place(names, times, bind=True)
    core_pods_per_s = CALLS / (_cpu_s(pid) - before_s)
    p99_ms = {verb: _percentile(getattr(times, verb), 99) for verb in VERBS}
    print(
        f"{names:12,}  {_percentile(times.filter, 50):8.2f} {p99_ms['filter']:8.2f} "
        f"{_percentile(times.filter_cpu, 99):8.2f}  {p99_ms['prioritize']:9.2f} "
        f"{p99_ms['bind']:7.2f}   {core_pods_per_s:9,.0f}",
        flush=True,
    )
    figures = {f"extender_{names}_{verb}_p99_ms": p99_ms[verb] for verb in VERBS}
    return figures | {f"extender_{names}_core_pods_per_s": core_pods_per_s}


def _percentile(latencies_ms: list[float], percent: int) -> float:
    return float(np.percentile(latencies_ms, percent, method="inverted_cdf"))


def _cpu_s(pid: int) -> float:
    """Return the CPU time of the service's main thread, which runs its event loop."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


# -- lists -------------------------------------------------------------------------------------


def listed() -> dict[str, float]:
    """Return CPU times and peak memory of both lists, in a process of their own."""
    with process_pool(1, start_method="spawn") as processes:
        return processes.submit(_listed).result()


def _listed() -> dict[str, float]:
    workflows, profiles = documents()
    service = embedded_service(Settings(), (), [*workflows, *profiles])
    nodes = (json.dumps(node) for node in synthetic_load.nodes(NODE_COUNT, GPUS))
    bound = synthetic_load.bound_pods(workflows, profiles, NODE_COUNT, GPUS, POD_COUNT)
    pods = (pod.decode() for pod in bound)
    return {
        "nodes_list_s": _list_s(service.state.nodes, NODES, nodes),
        "pods_list_s": _list_s(service.state.pods, PODS, pods),
        "lists_peak_mib": peak_mib(),
    }


def _list_s(handler: Handler, resource: Resource, objects: Iterator[str]) -> float:
    """Pass a list to a handler; return the CPU time without that of the API server."""
    api, began_s = PlayedList(objects), process_time()
    items, _ = asyncio.run(list_all(cast("Api", api), resource, selectors={}, page=PAGE))
    handler.replace(items)
    return process_time() - began_s - api.spent_s


class PlayedList:
    """API server that lists objects.

    Attributes:
        spent_s: CPU time in which it created the pages.
    """

    def __init__(self, objects: Iterator[str]) -> None:
        self._objects = objects
        self.spent_s = 0.0

    async def read(self, path: str, *, query: Mapping[str, Any]) -> bytes:  # noqa: ARG002 - of one resource
        """Return the next page."""
        began_s = process_time()
        page = list(islice(self._objects, query["limit"]))
        metadata = {"resourceVersion": "1", "continue": "next" if page else ""}
        text = f'{{"items":[{",".join(page)}],"metadata":{json.dumps(metadata)}}}'.encode()
        self.spent_s += process_time() - began_s
        return text


if __name__ == "__main__":
    main()
    sys.exit(0)
