"""Simulated kubelets: containers start and end; pods of lost nodes are removed.

A container counts as running from the Binding on. Its kubelet reports its end in the pod's phase,
and only then removes the pod. If the pod is gone before, the container has its grace period from
the moment at which the kubelet sees that.
"""

import asyncio
from contextvars import copy_context
from functools import partial
from zlib import crc32

from tests.campaign.audit import GpuShares, Share, pool_of, share_of
from tests.campaign.gateway_documents import POOL_LABEL
from tests.campaign.simulated_server import SimulatedServer
from workbench.cluster.api_requests import NODES, PODS, ApiTarget
from workbench.cluster.object_store import Key, ObjectChange, Raw

START_S = 0.7
STOP_S = 3.0  # a container that handles SIGTERM
GRACE_S = 30.0  # Kubernetes' default
REACTION_S = 1.0  # until a kubelet has seen a change
REMOVE_S = 0.02  # between the report of the end and the removal of the pod
ORPHANED_S = 40.0  # the pod garbage collector removes pods of a node that is gone


class SimulatedKubelet:
    """Acts on changes of the server, by timers.

    Attributes:
        running: shares of the containers that run.
    """

    def __init__(self, server: SimulatedServer, gpu_memory_mib: int) -> None:
        self.running = GpuShares(gpu_memory_mib)
        self._server = server
        self._terminating: set[str] = set()  # UIDs
        # On machines of their own: the one whose write they act on may be paused.
        self._later = partial(asyncio.get_running_loop().call_later, context=copy_context())

    def observe(self, path: str, change: ObjectChange) -> None:
        """Take in a change of the server."""
        if path == NODES and change.after is None:
            self._later(ORPHANED_S, self._remove_orphans, change.before)
        pod = change.after or change.before
        if path != PODS or pod is None or not pod["spec"].get("nodeName"):
            return
        metadata = pod["metadata"]
        key, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
        if change.after is None:
            if uid in self.running.shares and uid not in self._terminating:
                self._later(REACTION_S + grace_s(pod), self.running.set, uid, None)
        elif metadata.get("deletionTimestamp"):
            if uid not in self._terminating and metadata["deletionGracePeriodSeconds"]:
                self._terminating.add(uid)
                self._later(stop_s(pod), self._stop, key, uid)
        elif change.before is None or not change.before["spec"].get("nodeName"):
            self.running.set(uid, process_of(pod))
            self._later(START_S, self._start, key, uid)

    def finish(self, key: Key, phase: str = "Succeeded") -> None:
        """End the containers of a bound pod, and report it; raises `StatusError`."""
        pod = self._server.store.get(PODS, key)
        if pod["spec"].get("nodeName"):
            self.running.set(pod["metadata"]["uid"], None)
            self._report_end(key, phase)

    def _is_there(self, key: Key, uid: str) -> bool:
        pod = self._server.store.collection(PODS).objects.get(key)
        return pod is not None and pod["metadata"]["uid"] == uid

    def _start(self, key: Key, uid: str) -> None:
        if self._is_there(key, uid):
            pod = self._server.store.get(PODS, key)
            if (pod.get("status") or {}).get("phase") == "Pending":
                container = {"name": "function", "state": {"running": {}}}
                status: Raw = {"phase": "Running", "containerStatuses": [container]}
                if POOL_LABEL in pod["metadata"]["labels"]:  # somebody calls it
                    ready = {"type": "Ready", "status": "True"}
                    status |= {"podIP": key[1], "conditions": [ready]}
                self._server.requests.object(
                    "PATCH", ApiTarget(PODS, *key, "status"), {"status": status}
                )

    def _stop(self, key: Key, uid: str) -> None:
        """End the containers of a terminating pod."""
        self.running.set(uid, None)
        if not self._is_there(key, uid):
            return
        node = self._server.store.get(PODS, key)["spec"]["nodeName"]
        if ("", node) in self._server.store.collection(NODES).objects:
            self._report_end(key, "Failed")
            self._later(REMOVE_S, self._remove, key, uid)
        else:  # nothing is reported before the node returns, or the garbage collector comes
            self._later(STOP_S, self._stop, key, uid)

    def _report_end(self, key: Key, phase: str) -> None:
        status = {"status": {"phase": phase, "containerStatuses": None}}
        self._server.store.patch(PODS, key, status)

    def _remove(self, key: Key, uid: str) -> None:
        if self._is_there(key, uid):
            self._server.delete_pod(key[1], grace_s=0)

    def _remove_orphans(self, node: Raw) -> None:
        """Remove the pods of a node that is gone, as the pod garbage collector does: as failed."""
        name = node["metadata"]["name"]
        if ("", name) in self._server.store.collection(NODES).objects:
            return
        for pod in self._server.store.list(PODS):
            if pod["spec"].get("nodeName") == name:
                metadata = pod["metadata"]
                key = metadata["namespace"], metadata["name"]
                if share_of(pod) is not None:
                    self._server.store.patch(PODS, key, {"status": {"phase": "Failed"}})
                self._server.delete_pod(key[1], grace_s=0)


def process_of(pod: Raw) -> Share | None:
    """Return the share that a pod's process uses all the time: that of a holder's is none."""
    share = share_of(pod)
    return share and share._replace(percent=0 if pool_of(pod)[0] else share.percent)


def grace_s(pod: Raw) -> float:
    """Return a pod's grace period."""
    return float(pod["spec"].get("terminationGracePeriodSeconds", GRACE_S))


def stop_s(pod: Raw) -> float:
    """Return the time from a deletion to the end of the containers: one of four ignores SIGTERM."""
    ignores_sigterm = crc32(pod["metadata"]["uid"].encode()) % 4 == 0
    return grace_s(pod) if ignores_sigterm else min(STOP_S, grace_s(pod))
