"""A stand-in for the cluster of the extender's service.

It has the parts of an API server that matter here: nodes, fixed at the start, and pods that are
bound once, in one step with their annotations, with their UID as a precondition.
"""

import asyncio
import copy
from collections.abc import Iterable

from scheduler.cluster.api import Raw
from scheduler.cluster.binding import Binding, BindOutcome, BindResult
from scheduler.cluster.events import EventType, Reference
from scheduler.cluster.link import Handlers
from scheduler.cluster.owner_lease import OwnerLease
from scheduler.cluster.reflector import Handler
from scheduler.cluster.resource import trim_node, trim_pod
from scheduler.cluster.status_writer import StatusWriter

_Key = tuple[str, str]


class EmbeddedCluster:
    """A `ClusterLink` without a server. Handlers run before a method returns."""

    owner_lease: OwnerLease | None = None  # this process alone binds pods
    status_lease: OwnerLease | None = None
    statuses: StatusWriter | None = None

    def __init__(self, nodes: Iterable[Raw]) -> None:
        self._pod_handlers: list[Handler] = []
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._pending: dict[_Key, Raw] = {}
        self._bound: dict[_Key, Raw] = {}

    def follow(self, handlers: Handlers) -> None:
        """Add receivers; those of nodes and pods get the state at once."""
        if handlers.nodes is not None:
            handlers.nodes.replace(trim_node(node) for node in self._nodes.values())
        if handlers.pods is not None:
            handlers.pods.replace(())
            self._pod_handlers.append(handlers.pods)

    def upsert_pod(self, raw: Raw) -> None:
        """Add or update a pod, from its creator's or the scheduler's view.

        A bound pod stays unchanged: the caller may not know of the binding yet. A pod with the same
        name and another UID replaces the old one.
        """
        # Copies of the parts that a Binding changes. A copy of everything would be a fifth of a
        # filter call in the benchmarks.
        parts = {part: {**(raw.get(part) or {})} for part in ("metadata", "spec", "status")}
        pod = {**raw, **parts}
        pod["metadata"].setdefault("namespace", "default")
        key = pod["metadata"]["namespace"], pod["metadata"].get("name", "")
        existing = self._bound.get(key) or self._pending.get(key)
        if existing is not None and _uid(existing) != _uid(pod):
            self.delete_pod(*key)
        elif key in self._bound:
            return
        if pod["spec"].get("nodeName"):
            self._pending.pop(key, None)
            self._bound[key] = pod
        else:
            pod["status"].setdefault("phase", "Pending")
            self._pending[key] = pod
        self._report(pod)

    async def bind(
        self,
        request: Binding,
        *,
        timeout_s: float,
    ) -> BindResult:
        """Bind a known pod, like `ClusterLink.bind`, but never `BindOutcome.UNKNOWN`."""
        key, node = (request.namespace, request.name), request.node
        existing = self._bound.get(key) or self._pending.get(key)
        if existing is None:
            return _refused(
                f"unknown pod: {request.namespace}/{request.name}; call filter for it first"
            )
        if _uid(existing) != request.uid:
            return _refused("the pod was recreated with another UID", existing)
        if key in self._bound:
            bound_to = existing["spec"]["nodeName"]
            if bound_to == node:
                message = f"the pod is already on node {bound_to}"
                return BindResult(BindOutcome.ALREADY_BOUND, message, copy.deepcopy(existing))
            return _refused(f"the pod is bound to node {bound_to}", existing)
        if node not in self._nodes:
            return _refused(f"unknown node: {node}")
        pod = self._pending.pop(key)
        pod["metadata"]["annotations"] = {
            **(pod["metadata"].get("annotations") or {}),
            **request.annotations,
        }
        pod["spec"]["nodeName"] = node
        pod["status"]["phase"] = "Running"
        self._bound[key] = pod
        self._report(pod)
        return BindResult(BindOutcome.BOUND)

    def finish_pod(self, namespace: str, name: str, phase: str = "Succeeded") -> None:
        """End the pod's containers; ``phase`` is Succeeded or Failed.

        Raises:
            KeyError: no such pod is bound.
        """
        pod = self._bound[namespace, name]
        pod["status"]["phase"] = phase
        self._report(pod)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete the pod, if it exists."""
        key = namespace, name
        pod = self._bound.pop(key, None)
        if pod is not None:
            pod["status"]["phase"] = "Failed"  # its containers end with it
        else:
            pod = self._pending.pop(key, None)
        if pod is not None:
            for handler in self._pod_handlers:
                handler.delete(trim_pod(pod))

    async def get_pod(
        self,
        namespace: str,
        name: str,
        *,
        timeout_s: float | None = None,
    ) -> Raw | None:
        """Return a copy of the pod, or None."""
        key = namespace, name
        return copy.deepcopy(self._bound.get(key) or self._pending.get(key))

    async def void_bindings(
        self,
        namespace: str,
        name: str,
        version: str,
        *,
        timeout_s: float | None = None,
    ) -> Raw | None:
        """Return a trimmed copy of the pod, or None."""
        pod = await self.get_pod(namespace, name)
        return None if pod is None else trim_pod(pod)

    async def list_pods(self) -> tuple[Iterable[Raw], int]:
        """Return trimmed copies of the pods; they have no versions."""
        pods = (*self._pending.values(), *self._bound.values())
        return map(trim_pod, copy.deepcopy(pods)), 0

    async def relist_pods(self) -> None:
        """Return at once: the handlers know all pods."""

    def record_event(
        self,
        reference: Reference,
        *,
        type: EventType,  # noqa: A002
        reason: str,
        message: str,
    ) -> None:
        """Drop the event: it has no reader."""

    def staleness_s(self) -> dict[str, float]:
        """Return zeros: the cache is the cluster."""
        return {"nodes": 0.0, "pods": 0.0}

    def unwritten_claims(self) -> int:
        """Return zero: nothing prepares claims here."""
        return 0

    def troubles(self) -> dict[str, str]:
        """Return no troubles."""
        return {}

    def synced(self) -> bool:
        """Return true: there is no first list to wait for."""
        return True

    async def run(self) -> None:
        """Do nothing until cancelled."""
        await asyncio.Event().wait()

    def _report(self, pod: Raw) -> None:
        for handler in self._pod_handlers:
            handler.upsert(trim_pod(pod))


def _uid(pod: Raw) -> str:
    return str(pod["metadata"].get("uid") or "")


def _refused(message: str, pod: Raw | None = None) -> BindResult:
    return BindResult(BindOutcome.REFUSED, message, copy.deepcopy(pod))
