"""A played kubelet of all nodes: addresses, starts, readiness and ends of their pods.

A pod gets an address of its own on the loopback (Linux answers on all of 127.0.0.0/8). A played
model server listens there when the cold start of its profile is over, but for the gateway's first
batch, which is a part of it.
"""

import asyncio
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from typing import Any

from scheduler.dispatch.pods import Share
from scheduler.gateway.scaling.pool_pod import warm_up_row
from scheduler.model.documents import FunctionProfile
from scheduler.model.grant import Grant, grant_of
from scheduler.model.names import LABEL_FUNCTION, POOL_HOLDER
from workbench.cluster.api_requests import FUNCTION_SERVERS, PODS
from workbench.cluster.model_player import PlayedPod
from workbench.cluster.model_pods import ModelPods
from workbench.cluster.object_store import Key, ObjectStore, Raw

FIRST_ADDRESS = "127.64.0.1"
_READY = {"type": "Ready"}
_TRUE, _FALSE = {"status": "True"}, {"status": "False"}


class Kubelet:
    """Runs the pods of a store that have a node.

    Args:
        store: store of the pods, and of the FunctionServers that they belong to.
        profiles: profiles with the times of the functions, by name.
        model_pods: process that plays the model servers of the pods.
        outputs: function that returns the names of a function's outputs, by namespace and function.
        grace_s: time for the runs in progress when a pod is deleted, in seconds.
    """

    def __init__(
        self,
        store: ObjectStore,
        profiles: Mapping[str, FunctionProfile],
        model_pods: ModelPods,
        *,
        outputs: Callable[[Key], tuple[str, ...]],
        grace_s: float = 2.0,
    ) -> None:
        self._store = store
        self._profiles = profiles
        self._model_pods = model_pods
        self._outputs = outputs
        self._grace_s = grace_s
        self._addresses: dict[str, str] = {}  # by UID
        self._starts: dict[str, asyncio.Task[None]] = {}  # by UID, until the pod ends
        self._next_address = IPv4Address(FIRST_ADDRESS)

    async def run(self) -> None:
        """Start and end pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            with self._store.watching(PODS, since=0) as changes:
                async for change in changes:
                    pod = change.after or change.before
                    if pod is None or not pod["spec"].get("nodeName"):
                        continue
                    metadata = pod["metadata"]
                    uid, key = metadata["uid"], (metadata["namespace"], metadata["name"])
                    if change.after is None or metadata.get("deletionTimestamp"):
                        if (start := self._starts.pop(uid, None)) is not None:
                            start.cancel()
                            group.create_task(self._end(key, uid))
                    elif uid not in self._addresses:
                        self._addresses[uid] = str(self._next_address)
                        self._next_address += 1
                        self._starts[uid] = group.create_task(self._start(key, pod))

    async def _start(self, key: Key, pod: Raw) -> None:
        metadata, grant = pod["metadata"], grant_of(pod)
        assert grant is not None  # noqa: S101 - a pod with a node has one
        if grant.pool == POOL_HOLDER:  # it has no model server
            self._patch(key, {"phase": "Running", "conditions": [_READY | _TRUE]})
            return
        host, function = self._addresses[metadata["uid"]], metadata["labels"][LABEL_FUNCTION]
        profile = self._profiles[function]
        self._patch(key, {"phase": "Pending", "podIP": host, "conditions": [_READY | _FALSE]})
        await asyncio.sleep(start_s(grant, profile))
        await self._model_pods.start(
            PlayedPod(
                name="/".join(key),
                host=host,
                port=self._port(key[0], function),
                gpu_percent=grant.gpu_percent,
                latencies_ms=latencies_ms(grant, profile),
                outputs=self._outputs((key[0], function)),
            )
        )
        self._patch(key, {"phase": "Running", "conditions": [_READY | _TRUE]})

    def _port(self, namespace: str, function: str) -> int:
        """Return the port of a function's server."""
        port: int = next(
            server["spec"]["port"]
            for server in self._store.list(FUNCTION_SERVERS)
            if server["metadata"]["namespace"] == namespace
            and server["spec"]["function"] == function
        )
        return port

    async def _end(self, key: Key, uid: str) -> None:
        """End the container, then the pod: one that was deleted by force is gone already."""
        await asyncio.sleep(self._grace_s)
        await self._model_pods.stop("/".join(key))
        pod = self._store.collection(PODS).objects.get(key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._store.patch(PODS, key, {"status": {"phase": "Failed"}})
            self._store.delete(PODS, key)

    def _patch(self, key: Key, status: Raw) -> None:
        if key in self._store.collection(PODS).objects:
            self._store.patch(PODS, key, {"status": status})


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return true if a pod's condition Ready is true."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def latencies_ms(grant: Grant, profile: FunctionProfile) -> dict[int, float]:
    """Return the times of a share by batch."""
    return {
        row.batch: row.latency_ms
        for gpu in profile.spec.gpus
        if gpu.model == grant.plan["gpu_model"]
        for row in gpu.configurations
        if (row.cpu, row.gpu_percent) == (grant.cpu, grant.gpu_percent)
    }


def start_s(grant: Grant, profile: FunctionProfile) -> float:
    """Return the time until the model server of a share listens."""
    share = Share(str(grant.plan["gpu_model"]), grant.cpu, grant.gpu_percent, grant.memory_mib)
    warm_up_ms = latencies_ms(grant, profile)[warm_up_row(profile, share).batch]
    return max(profile.spec.cold_start_ms - warm_up_ms, 0.0) / 1000
