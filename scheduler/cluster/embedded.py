"""A cluster in memory, for the service without Kubernetes: demo, tests, trying things out.

It has what the API server has that matters here, no more: nodes that are given once, and pods that
are bound once, in one step with their annotations, under the guard of their UID.
"""

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Iterable

from scheduler.cluster.api import Raw
from scheduler.cluster.binding import Binding, BindOutcome, BindResult
from scheduler.cluster.events import EventType, Reference
from scheduler.cluster.link import Handlers
from scheduler.cluster.resource import trim_node, trim_pod

PENDING_MAX = 10_000
_Key = tuple[str, str]


class EmbeddedCluster:
    """A `ClusterLink` to nothing. The handlers are told before a method returns.

    Args:
        nodes: Node documents, parsed.
        handlers: who is told; their ``nodes`` and ``pods`` are, at once.
        pending_max: how many pods that were shown but not bound are remembered; beyond it the one
            that was shown longest ago is forgotten, and deleted for the handlers.
    """

    def __init__(
        self, nodes: Iterable[Raw], handlers: Handlers, *, pending_max: int = PENDING_MAX
    ) -> None:
        self._handlers = handlers
        self._pending_max = pending_max
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._pending: OrderedDict[_Key, Raw] = OrderedDict()
        self._bound: dict[_Key, Raw] = {}
        handlers.nodes.replace(trim_node(node) for node in self._nodes.values())
        handlers.pods.replace(())

    def upsert_pod(self, raw: Raw) -> None:
        """Show a pod, as its creator or the scheduler sees it.

        A pod that is bound stays as it is: who shows it may not have heard of that yet. One of the
        same name and another UID takes its place.
        """
        pod = copy.deepcopy(raw)
        metadata = pod.setdefault("metadata", {})
        metadata.setdefault("namespace", "default")
        key = metadata["namespace"], metadata.get("name", "")
        there = self._bound.get(key) or self._pending.get(key)
        if there is not None and _uid(there) != _uid(pod):
            self.delete_pod(*key)
        elif key in self._bound:
            return
        if (pod.get("spec") or {}).get("nodeName"):
            self._pending.pop(key, None)
            self._bound[key] = pod
        else:
            pod.setdefault("status", {}).setdefault("phase", "Pending")
            self._pending[key] = pod
            self._pending.move_to_end(key)
        self._handlers.pods.upsert(trim_pod(pod))
        if len(self._pending) > self._pending_max:
            self.delete_pod(*next(iter(self._pending)))

    async def bind(
        self,
        wanted: Binding,
        *,
        timeout_s: float,  # noqa: ARG002 - it never takes long
    ) -> BindResult:
        """Bind a pod that was shown; as `ClusterLink.bind`, but never `BindOutcome.UNKNOWN`."""
        key, node = (wanted.namespace, wanted.name), wanted.node
        there = self._bound.get(key) or self._pending.get(key)
        if there is None:
            return _refused(
                f"pod {wanted.namespace}/{wanted.name} is not known here; filter shows it first"
            )
        if _uid(there) != wanted.uid:
            return _refused("the pod was deleted; another of its name is there", there)
        if key in self._bound:
            bound_to = there["spec"]["nodeName"]
            if bound_to == node:
                message = f"the pod is on node {bound_to} already"
                return BindResult(BindOutcome.ALREADY_BOUND, message, copy.deepcopy(there))
            return _refused(f"the pod is bound to node {bound_to}", there)
        if node not in self._nodes:
            return _refused(f"node {node} is not known here")
        pod = self._pending.pop(key)
        pod["metadata"]["annotations"] = {
            **(pod["metadata"].get("annotations") or {}),
            **wanted.annotations,
        }
        pod.setdefault("spec", {})["nodeName"] = node
        pod["status"]["phase"] = "Running"
        self._bound[key] = pod
        self._handlers.pods.upsert(trim_pod(pod))
        return BindResult(BindOutcome.BOUND)

    def finish_pod(self, namespace: str, name: str, phase: str = "Succeeded") -> None:
        """The pod's containers have ended; ``phase`` is Succeeded or Failed.

        Raises:
            KeyError: no such pod is bound.
        """
        pod = self._bound[namespace, name]
        pod["status"]["phase"] = phase
        self._handlers.pods.upsert(trim_pod(pod))

    def delete_pod(self, namespace: str, name: str) -> None:
        """The pod is gone; nothing happens where it is not known."""
        key = namespace, name
        pod = self._bound.pop(key, None) or self._pending.pop(key, None)
        if pod is not None:
            self._handlers.pods.delete(trim_pod(pod))

    async def get_pod(
        self,
        namespace: str,
        name: str,
        *,
        timeout_s: float | None = None,  # noqa: ARG002 - it never takes long
    ) -> Raw | None:
        """A copy of the pod, or None."""
        key = namespace, name
        return copy.deepcopy(self._bound.get(key) or self._pending.get(key))

    def record_event(
        self,
        reference: Reference,
        *,
        type: EventType,  # noqa: A002
        reason: str,
        message: str,
    ) -> None:
        """Nobody would read it."""

    def staleness_s(self) -> dict[str, float]:
        """It is never stale."""
        return {"nodes": 0.0, "pods": 0.0}

    def troubles(self) -> dict[str, str]:
        """It is never in trouble."""
        return {}

    def synced(self) -> bool:
        """From the beginning."""
        return True

    async def run(self) -> None:
        """Nothing to do until cancelled."""
        await asyncio.Event().wait()


def _uid(pod: Raw) -> str:
    return str(pod["metadata"].get("uid") or "")


def _refused(message: str, pod: Raw | None = None) -> BindResult:
    return BindResult(BindOutcome.REFUSED, message, copy.deepcopy(pod))
