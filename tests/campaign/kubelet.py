"""Simulated kubelets: pods start and terminate; pods of lost nodes are removed."""

import asyncio

from tests.campaign.gateway_documents import POOL_LABEL
from tests.campaign.simulated_server import SimulatedServer
from workbench.cluster.api_requests import NODES, PODS, ApiTarget
from workbench.cluster.object_store import Key, ObjectChange, Raw

START_S = 0.7
GRACE_S = 3.0
ORPHANED_S = 40.0  # the pod garbage collector removes pods of a node that is gone


class SimulatedKubelet:
    """Acts on changes of the server, by timers."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._terminating: set[str] = set()  # UIDs

    def observe(self, path: str, change: ObjectChange) -> None:
        """Take in a change of the server."""
        if path == NODES and change.after is None:
            self._loop.call_later(ORPHANED_S, self._remove_orphans, change.before)
        pod = change.after
        if path != PODS or pod is None or not (node := pod["spec"].get("nodeName")):
            return
        metadata = pod["metadata"]
        key, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
        if metadata.get("deletionTimestamp"):
            if uid not in self._terminating:
                self._terminating.add(uid)
                self._loop.call_later(GRACE_S, self._remove, key, uid, node)
        elif change.before is not None and not change.before["spec"].get("nodeName"):
            self._loop.call_later(START_S, self._start, key, uid)

    def _is_there(self, key: Key, uid: str) -> bool:
        pod = self._server.store.collection(PODS).objects.get(key)
        return pod is not None and pod["metadata"]["uid"] == uid

    def _start(self, key: Key, uid: str) -> None:
        if self._is_there(key, uid):
            pod = self._server.store.get(PODS, key)
            if (pod.get("status") or {}).get("phase") == "Pending":
                status: Raw = {"phase": "Running"}
                if POOL_LABEL in pod["metadata"]["labels"]:  # somebody calls it
                    ready = {"type": "Ready", "status": "True"}
                    status |= {"podIP": key[1], "conditions": [ready]}
                self._server.requests.object(
                    "PATCH", ApiTarget(PODS, *key, "status"), {"status": status}
                )

    def _remove(self, key: Key, uid: str, node: str) -> None:
        if not self._is_there(key, uid):
            return
        if ("", node) in self._server.store.collection(NODES).objects:
            self._server.store.delete(PODS, key)
        else:  # no kubelet answers; its garbage collector will, or the node returns
            self._loop.call_later(GRACE_S, self._remove, key, uid, node)

    def _remove_orphans(self, node: dict) -> None:
        name = node["metadata"]["name"]
        if ("", name) in self._server.store.collection(NODES).objects:
            return
        for pod in self._server.store.list(PODS):
            if pod["spec"].get("nodeName") == name:
                metadata = pod["metadata"]
                self._server.store.delete(PODS, (metadata["namespace"], metadata["name"]))
