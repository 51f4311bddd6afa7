"""A cluster in memory with the real extender; each measured pod is played, and pairs slow down."""

import asyncio
import json
import sys
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

import aiohttp
from anyio.from_thread import start_blocking_portal

from scheduler.model.grant import Grant, grant_annotations, grant_of
from scheduler.model.names import ANNOTATION_GPUS, LABEL_FUNCTION, LABEL_MEASUREMENT
from tests.profiles.harness import TimedServer
from workbench.cluster.api_requests import KINDS, NODES, PODS
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.extender import ExtenderClient
from workbench.cluster.kube_scheduler import PlayedScheduler
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.object_store import ObjectStore
from workbench.cluster.process import free_port, programs, wait_until

ESG = Path(sys.executable).with_name("esg")
GPU_MODEL = "NVIDIA A100-SXM4-80GB"
FIRST_ADDRESS = IPv4Address("127.65.0.1")
SLOWDOWN = 3.0
"""Time of a run over its time alone, while another pod of the GPU runs a batch."""


@dataclass
class SharingServer(TimedServer):
    """The model server of a pod.

    Attributes:
        on_gpu: servers on the same GPU.
        running: number of runs in progress.
    """

    on_gpu: list["SharingServer"] = field(default_factory=list)
    running: int = 0

    async def spend_time(self, rows):
        is_slow = any(server.running for server in self.on_gpu if server is not self)
        self.running += 1
        try:
            await asyncio.sleep((SLOWDOWN if is_slow else 1.0) * self.run_ms / 1000)
        finally:
            self.running -= 1


@dataclass
class PlayedCluster:
    """Nodes, and what happens to measured pods.

    Attributes:
        port: port of all model servers.
        run_ms: time of a run of each function.
        gpu_uuids: UUIDs of the GPUs.
        created: (function, GPU) of each pod that got a GPU, in order.
    """

    store: ObjectStore
    port: int
    run_ms: dict[str, float]
    kubeconfig: Path = Path()
    gpu_uuids: list[str] = field(default_factory=list)
    created: list[tuple[str, str]] = field(default_factory=list)

    @property
    def measured_pods(self):
        """Measured pods that exist."""
        pods = self.store.list(PODS)
        return [pod for pod in pods if LABEL_MEASUREMENT in pod["metadata"]["labels"]]

    async def run_pods(self):
        """Start the model servers of measured pods that have a GPU, and end deleted pods."""
        address, started = FIRST_ADDRESS, {}
        on_gpu = defaultdict(list)
        with self.store.watching(PODS, since=0) as changes:
            async for change in changes:
                pod = change.after
                if pod is None or LABEL_MEASUREMENT not in pod["metadata"]["labels"]:
                    continue
                key = pod["metadata"]["namespace"], pod["metadata"]["name"]
                if pod["metadata"].get("deletionTimestamp"):
                    if key in started:
                        await started.pop(key).aclose()
                        # Its container has ended, before the object goes.
                        self.store.patch(PODS, key, {"status": {"phase": "Failed"}})
                        self.store.delete(PODS, key)
                elif pod["spec"].get("nodeName") and key not in started:
                    function = pod["metadata"]["labels"][LABEL_FUNCTION]
                    gpu = grant_of(pod).gpu_uuid
                    self.created.append((function, gpu))
                    server = SharingServer(run_ms=self.run_ms[function], on_gpu=on_gpu[gpu])
                    started[key] = AsyncExitStack()
                    await started[key].enter_async_context(server.serving(str(address), self.port))
                    on_gpu[gpu].append(server)
                    started[key].callback(on_gpu[gpu].remove, server)
                    self.store.patch(PODS, key, {"status": {"podIP": str(address)}})
                    address += 1

    def hold(self, gpu, percent):
        """Bind a pod that holds a share of a GPU."""
        grant = Grant(gpu, percent, 1000, 1, {"cpu": 1, "gpu_model": GPU_MODEL})
        self.store.create(
            PODS,
            {
                "metadata": {
                    "name": "other", "namespace": "default", "labels": {LABEL_FUNCTION: "other"},
                    "annotations": grant_annotations(grant),
                },
                "spec": {"nodeName": "node-000", "schedulerName": "esg-scheduler"},
                "status": {"phase": "Running"},
            },
        )  # fmt: skip


@asynccontextmanager
async def _running(folder, gpus, run_ms, held_percent):
    cluster = PlayedCluster(ObjectStore(KINDS), free_port(str(FIRST_ADDRESS)), run_ms)
    [node] = gpu_nodes(1, gpus)
    cluster.store.create(NODES, node)
    inventory = json.loads(node["metadata"]["annotations"][ANNOTATION_GPUS])
    cluster.gpu_uuids = [gpu["uuid"] for gpu in inventory]
    if held_percent:
        cluster.hold(cluster.gpu_uuids[-1], held_percent)
    cluster.kubeconfig = folder / "kubeconfig"
    port = free_port()
    async with (
        programs() as running,
        ApiServer(cluster.store).serving() as url,
        aiohttp.ClientSession() as session,
        asyncio.TaskGroup() as group,
    ):
        write_kubeconfig(cluster.kubeconfig, url)
        command = [ESG, "serve", "--kubeconfig", cluster.kubeconfig, "--host", "127.0.0.1"]
        environment = {"ESG_LOG_LEVEL": "warning", "no_proxy": "127.0.0.1"}
        await running.start(
            "the extender", [*map(str, command), f"--port={port}"], environment=environment
        )
        extender = ExtenderClient(session, f"http://127.0.0.1:{port}")
        await wait_until(extender.ready, "the extender")
        scheduler = PlayedScheduler(cluster.store, extender)
        players = [group.create_task(run()) for run in (scheduler.run, cluster.run_pods)]
        yield cluster
        running.ignore_ends()
        for player in players:
            player.cancel()


@contextmanager
def played_cluster(folder, run_ms, *, gpus=1, held_percent=0):
    """Run one node in a thread while inside; yields the cluster.

    Args:
        folder: folder for its kubeconfig.
        run_ms: time of a run of each function, ms.
        gpus: number of its GPUs.
        held_percent: share of the last GPU that another pod holds.
    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_running(folder, gpus, run_ms, held_percent)) as cluster,
    ):
        yield cluster
