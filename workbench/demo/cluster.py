"""The demo's cluster: an API server in memory, the real extender and gateway, and played parts."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from scheduler.model.documents import FunctionProfile, Workflow, to_manifest
from scheduler.model.names import LABEL_FUNCTION
from workbench.cluster.api_requests import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    KINDS,
    NODES,
    PODS,
    WORKFLOWS,
)
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.extender import ExtenderClient
from workbench.cluster.kube_scheduler import PlayedScheduler, is_unschedulable
from workbench.cluster.kubelet import FIRST_ADDRESS, Kubelet, is_ready
from workbench.cluster.model_pods import ModelPods
from workbench.cluster.object_store import ObjectStore, Raw
from workbench.cluster.process import ProgramError, Programs, free_port, programs, wait_until
from workbench.demo.pod_plan import PodGroup, outputs_of, pods_of, server_of

NOISE_RATIO = 0.05  # standard deviation of log(run time / time of the profile)
_START_S = 60.0
_HOST = "127.0.0.1"
_ESG = str(Path(sys.executable).with_name("esg"))


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A running cluster.

    Attributes:
        programs: its processes.
        store: its objects.
        gateway: host and port of the gateway's HTTP front.
        metrics: addresses at which extender and gateway answer ``/metrics``.
        model_pods: the played model servers.
    """

    programs: Programs
    store: ObjectStore
    gateway: tuple[str, int]
    metrics: tuple[str, str]
    model_pods: ModelPods

    def pods(self) -> list[Raw]:
        """Return all pods."""
        return self.store.list(PODS)


@asynccontextmanager
async def running_cluster(
    nodes: Iterable[Raw],
    workflows: Sequence[Workflow],
    profiles: Mapping[str, FunctionProfile],
    *,
    seed: int,
) -> AsyncIterator[DemoCluster]:
    """Run the cluster while inside; extender and gateway are ready, and there are no pods.

    Raises:
        ProgramError: a program ended by itself; the body is cancelled.
    """
    store = ObjectStore(KINDS)
    for node in nodes:
        store.create(NODES, node)
    for profile in profiles.values():
        store.create(FUNCTION_PROFILES, to_manifest(profile))
    for workflow in workflows:
        manifest = to_manifest(workflow)
        manifest["metadata"]["namespace"] = workflow.key[0]
        store.create(WORKFLOWS, manifest)
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        async with (
            programs() as running,
            ApiServer(store).serving() as url,
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as group,
        ):
            write_kubeconfig(kubeconfig, url)
            start = _Start(running, kubeconfig, session)
            ports = [free_port() for _ in range(3)]
            extender, _, model_pods = await asyncio.gather(
                start.extender(ports[0]),
                start.gateway(ports[1], ports[2]),
                ModelPods.begin(running, seed=seed, noise_ratio=NOISE_RATIO),
            )
            kube_scheduler = PlayedScheduler(store, extender)
            kubelet = Kubelet(
                store,
                profiles,
                model_pods,
                outputs=lambda function: outputs_of(function, workflows),
            )
            players = [group.create_task(player.run()) for player in (kube_scheduler, kubelet)]
            yield DemoCluster(
                programs=running,
                store=store,
                gateway=(_HOST, ports[1]),
                metrics=(f"{_HOST}:{ports[0]}", f"{_HOST}:{ports[2]}"),
                model_pods=model_pods,
            )
            running.ignore_ends()
            for player in players:
                player.cancel()


async def create_pods(cluster: DemoCluster, groups: Sequence[PodGroup]) -> int:
    """Create FunctionServers and their pods, and wait until the pods are ready.

    Pods that fit no node are deleted; returns their number.

    Raises:
        ProgramError: a function has no pod, or some are not ready after a minute.
    """
    store, port = cluster.store, free_port(FIRST_ADDRESS)
    for group in groups:
        store.create(FUNCTION_SERVERS, server_of(group.function, port))
    for pod in pods_of(groups):
        store.create(PODS, pod)
    try:
        async with asyncio.timeout(_START_S):
            with store.watching(PODS) as changes:
                while not all(is_ready(pod) or is_unschedulable(pod) for pod in cluster.pods()):
                    await anext(aiter(changes))
    except TimeoutError:
        raise ProgramError(f"some pods are not ready after {_START_S:.0f} s") from None
    unschedulable = [pod["metadata"] for pod in cluster.pods() if is_unschedulable(pod)]
    for metadata in unschedulable:
        store.delete(PODS, (metadata["namespace"], metadata["name"]))
    served = {pod["metadata"]["labels"][LABEL_FUNCTION] for pod in cluster.pods()}
    for group in groups:
        if group.function[1] not in served:
            raise ProgramError(
                f"no node has room for a pod of {group.function[1]} with "
                f"{group.configuration.cpu} vCPU and {group.configuration.gpu_percent} % of a "
                "GPU; give more nodes, or a lower load"
            )
    return len(unschedulable)


@dataclass(frozen=True, slots=True)
class _Start:
    """Starts the programs that are shown."""

    programs: Programs
    kubeconfig: Path
    session: aiohttp.ClientSession

    async def extender(self, port: int) -> ExtenderClient:
        options = [f"--kubeconfig={self.kubeconfig}", f"--host={_HOST}", f"--port={port}"]
        await self.programs.start(
            "the extender", [_ESG, "serve", *options], environment={"ESG_LOG_LEVEL": "warning"}
        )
        extender = ExtenderClient(self.session, f"http://{_HOST}:{port}")
        await wait_until(extender.ready, "the extender")
        return extender

    async def gateway(self, port: int, health_port: int) -> None:
        await self.programs.start(
            "the gateway",
            [_ESG, "gateway", f"--kubeconfig={self.kubeconfig}"],
            environment={
                "ESG_LOG_LEVEL": "warning",
                "ESG_GATEWAY_HOST": _HOST,
                "ESG_GATEWAY_PORT": str(port),
                "ESG_HEALTH_HOST": _HOST,
                "ESG_HEALTH_PORT": str(health_port),
            },
        )

        async def ready() -> bool:
            try:
                async with self.session.get(f"http://{_HOST}:{health_port}/readyz") as answer:
                    return answer.ok
            except aiohttp.ClientError:
                return False

        await wait_until(ready, "the gateway")
