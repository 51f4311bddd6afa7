"""The demo's cluster: an API server in memory, the real extender and gateway, and played parts."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import aiohttp

from scheduler.model.documents import FunctionProfile, Workflow, to_manifest
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
from workbench.cluster.kube_scheduler import PlayedScheduler
from workbench.cluster.kubelet import FIRST_ADDRESS, Kubelet
from workbench.cluster.model_pods import ModelPods
from workbench.cluster.object_store import ObjectStore, Raw
from workbench.cluster.process import (
    Programs,
    core_wait_s,
    free_port,
    programs,
    wait_until,
)
from workbench.demo.function_servers import outputs_of, server_of

NOISE_RATIO = 0.05  # standard deviation of log(run time / time of the profile)
# All parts share the cores of one machine: plans keep more time than for the noise alone.
_MARGIN_RATIO = 0.25
Share = Literal["pooled", "reserved"]
_EXTENDER, _GATEWAY = "the extender", "the gateway"
_HOST = "127.0.0.1"
_ENVIRONMENT = {
    "ESG_HEALTH_HOST": _HOST,
    "ESG_LOG_LEVEL": "warning",
    "ESG_MARGIN_RATIO": str(_MARGIN_RATIO),
    "ESG_PAGE": "true",
}
_ESG = str(Path(sys.executable).with_name("esg"))


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A running cluster.

    Attributes:
        gateway: host and port of the gateway's HTTP front.
        page: URL of the live page.
        metrics: addresses at which extender and gateway answer ``/metrics``.
        model_pods: played model servers.
    """

    programs: Programs
    store: ObjectStore
    gateway: tuple[str, int]
    page: str
    metrics: tuple[str, str]
    model_pods: ModelPods

    def pods(self) -> list[Raw]:
        """Return all pods."""
        return self.store.list(PODS)

    def core_waits_s(self) -> list[float | None]:
        """Return how long extender and gateway have waited for a core so far; see `core_wait_s`."""
        pids = {program.name: program.process.pid for program in self.programs.all}
        return [core_wait_s(pids[name]) for name in (_EXTENDER, _GATEWAY)]

    async def wait_until_empty(self, limit_s: float) -> None:
        """Wait until the gateway has ended all pods, at most for a time."""
        with suppress(TimeoutError), self.store.watching(PODS) as changes:
            async with asyncio.timeout(limit_s):
                while self.pods():
                    await anext(changes)


@asynccontextmanager
async def running_cluster(
    nodes: Iterable[Raw],
    workflows: Sequence[Workflow],
    profiles: Mapping[str, FunctionProfile],
    *,
    seed: int,
    share: Share = "pooled",
) -> AsyncIterator[DemoCluster]:
    """Run the cluster while inside; extender and gateway are ready.

    There are no pods until the gateway creates some for requests. ``share`` is how they hold their
    shares of GPUs.

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
    port = free_port(FIRST_ADDRESS)
    for function in {(w.key[0], stage.function) for w in workflows for stage in w.spec.stages}:
        store.create(FUNCTION_SERVERS, server_of(function, port))
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        async with (
            programs() as running,
            ApiServer(store).serving() as url,
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as group,
        ):
            write_kubeconfig(kubeconfig, url)
            start = _Start(running, kubeconfig, session, share)
            ports = [free_port() for _ in range(4)]
            extender, _, model_pods = await asyncio.gather(
                start.extender(ports[0], ports[3]),
                start.gateway(ports[1], ports[2], f"http://{_HOST}:{ports[3]}"),
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
                page=f"http://{_HOST}:{ports[2]}",
                metrics=(f"{_HOST}:{ports[0]}", f"{_HOST}:{ports[2]}"),
                model_pods=model_pods,
            )
            running.ignore_ends()
            for player in players:
                player.cancel()


@dataclass(frozen=True, slots=True)
class _Start:
    """Starts the programs that are shown."""

    programs: Programs
    kubeconfig: Path
    session: aiohttp.ClientSession
    share: Share

    async def extender(self, port: int, health_port: int) -> ExtenderClient:
        options = [f"--kubeconfig={self.kubeconfig}", f"--host={_HOST}", f"--port={port}"]
        environment = {**_ENVIRONMENT, "ESG_HEALTH_PORT": str(health_port)}
        await self.programs.start(_EXTENDER, [_ESG, "serve", *options], environment=environment)
        extender = ExtenderClient(self.session, f"http://{_HOST}:{port}")
        await wait_until(extender.ready, _EXTENDER)
        return extender

    async def gateway(self, port: int, health_port: int, extender_url: str) -> None:
        await self.programs.start(
            _GATEWAY,
            [_ESG, "gateway", f"--kubeconfig={self.kubeconfig}"],
            environment={
                **_ENVIRONMENT,
                "ESG_GATEWAY_HOST": _HOST,
                "ESG_GATEWAY_PORT": str(port),
                "ESG_GATEWAY_PODS": "true",
                "ESG_GATEWAY_SHARE": self.share,
                "ESG_GATEWAY_HOLDER_IMAGE": "example.org/holder",
                "ESG_GATEWAY_TRUST_ARRIVAL": "true",  # those of the load's schedule
                "ESG_GATEWAY_EXTENDER_URL": extender_url,
                "ESG_HEALTH_PORT": str(health_port),
            },
        )

        async def ready() -> bool:
            try:
                async with self.session.get(f"http://{_HOST}:{health_port}/readyz") as answer:
                    return answer.ok
            except aiohttp.ClientError:
                return False

        await wait_until(ready, _GATEWAY)
