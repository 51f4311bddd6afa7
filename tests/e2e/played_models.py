"""Model servers of the gateway's pods on KWOK nodes, and what these pods cost.

KWOK gives each pod an address of the loopback. The played model server of a pod listens there when
the cold start of its profile is over but for the gateway's warm-up batch, which is a part of it.
"""

import asyncio
import time
from collections import Counter

import aiohttp

from scheduler.dispatch.pods import Share
from scheduler.gateway.scaling.pool_pod import warm_up_row
from scheduler.model.catalogue import Catalogue
from scheduler.model.grant import Grant, grant_of
from scheduler.model.names import LABEL_FUNCTION, POOL_HOLDER, POOL_MEMBER
from scheduler.model.plan import Prices
from scheduler.model.pools import pool_role
from tests.testbed.api import Json
from tests.testbed.pod_watch import watch_pods
from workbench.cluster.kubelet import latencies_ms
from workbench.cluster.model_player import PlayedPod
from workbench.cluster.model_pods import ModelPods
from workbench.demo.function_servers import outputs_of
from workbench.demo.summary import PodUsage

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class PlayedModels:
    """Follows the gateway's pods.

    Args:
        model_pods: the process that plays their model servers.
        catalogue: functions and workflows.
        port: port of the model servers.

    Attributes:
        usage: what the pods with a node hold; members of a pool hold nothing.
        bound: pods with a model server that ever had a node, by UID.
        most_process_percent: largest percent of all processes at a time on one GPU.
    """

    def __init__(self, model_pods: ModelPods, catalogue: Catalogue, port: int) -> None:
        self._model_pods = model_pods
        self._catalogue = catalogue
        self._port = port
        self._held: dict[str, Json] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, Grant | None] = {}
        self.usage = PodUsage(Prices())
        self.bound: dict[str, Json] = {}
        self._process_percent: Counter[str] = Counter()  # of the model servers, by GPU
        self.most_process_percent = 0

    async def follow(self, http: aiohttp.ClientSession) -> None:
        """Start and stop model servers until cancelled."""
        async with asyncio.TaskGroup() as group:
            async for event, pod in watch_pods(http, PODS, label_selector=""):
                uid = pod["metadata"]["uid"]
                role = pool_role(pod)
                if event == "DELETED":
                    self._held.pop(uid, None)
                    self._count_process(self._processes.pop(uid, None), -1)
                    if (start := self._starts.pop(uid, None)) is not None:
                        start.cancel()
                        group.create_task(self._model_pods.stop(uid))
                elif pod["spec"].get("nodeName"):
                    if role != POOL_MEMBER:
                        self._held[uid] = pod
                    if role == POOL_HOLDER:
                        continue
                    if uid not in self.bound:
                        self._processes[uid] = grant_of(pod)
                        self._count_process(self._processes[uid], 1)
                    self.bound[uid] = pod
                    if uid not in self._starts and pod["status"].get("podIP"):
                        self._starts[uid] = group.create_task(self._start(uid, pod))
                self.account()

    def _count_process(self, grant: Grant | None, number: int) -> None:
        if grant is not None:
            self._process_percent[grant.gpu_uuid] += number * grant.gpu_percent
            percent = self._process_percent[grant.gpu_uuid]
            self.most_process_percent = max(self.most_process_percent, percent)

    def account(self) -> None:
        """Count what the pods have held until now."""
        self.usage.update(self._held.values(), time.monotonic())

    async def _start(self, uid: str, pod: Json) -> None:
        function = pod["metadata"]["labels"][LABEL_FUNCTION]
        profile, grant = self._catalogue.profile(function), grant_of(pod)
        assert grant is not None
        times_ms = latencies_ms(grant, profile)
        share = Share(str(grant.plan["gpu_model"]), grant.cpu, grant.gpu_percent, grant.memory_mib)
        warm_up_ms = times_ms[warm_up_row(profile, share).batch]
        await asyncio.sleep(max(profile.spec.cold_start_ms - warm_up_ms, 0.0) / 1000)
        workflows = list(self._catalogue.workflows.values())
        await self._model_pods.start(
            PlayedPod(
                name=uid,
                host=pod["status"]["podIP"],
                port=self._port,
                gpu=grant.gpu_uuid,
                gpu_percent=grant.gpu_percent,
                latencies_ms=times_ms,
                outputs=outputs_of((NAMESPACE, function), workflows),
            )
        )


def server_of(function: str, port: int, **spec: object) -> Json:
    """Create the FunctionServer of a function whose pods the gateway creates."""
    return {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "FunctionServer",
        "metadata": {"name": function, "namespace": NAMESPACE},
        "spec": {
            "function": function,
            "protocol": "http-binary",
            "port": port,
            "template": {"spec": {"containers": [{"name": "server", "image": "none"}]}},
            **spec,
        },
    }
