"""One node and its pods: the reports for that node's agent, and the agent's few writes.

Field selectors keep the watches of many agents apart: each agent gets only its own node and pods,
like a kubelet.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.binding import pod_path
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.events import EventType, Recorder, Reference
from scheduler.cluster.reflector import Handler, Reflector
from scheduler.cluster.reflector_group import ReflectorGroup
from scheduler.cluster.resource import AGENT_NODES, PODS

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)


class OneNode(ReflectorGroup):
    """A node behind an API server.

    Args:
        name: name of the node.
        node: receiver of the node; without a registered node it gets an empty list.
        pods: receiver of the pods that are bound to the node.
        reflector: factory of the reflectors.

    Raises:
        ClusterConfigError: the name is not valid for a node.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        node: Handler,
        pods: Handler,
        reflector: Callable[..., Reflector] = Reflector,
    ) -> None:
        if _NAME.fullmatch(name) is None:
            raise ClusterConfigError(
                f"invalid node name: {name!r}; give the Node object's metadata.name"
            )
        super().__init__(
            (
                reflector(api, AGENT_NODES, node, field_selector=f"metadata.name={name}"),
                reflector(api, PODS, pods, field_selector=f"spec.nodeName={name}"),
            )
        )
        self.name = name
        self._api = api
        self._recorder = Recorder(api)

    async def annotate(self, annotations: Mapping[str, str | None]) -> Raw:
        """Set annotations of the node, or remove those of None; return the updated node, trimmed.

        Raises:
            ClusterError: like `Api.patch`.
        """
        change = {"metadata": {"annotations": dict(annotations)}}
        return await self._patch("", change)

    async def set_capacity(self, resource: str, amount: int | None) -> Raw:
        """Set the node's capacity of an extended resource, or remove it; return the updated node.

        A kubelet copies the capacity to allocatable later; this writes both, so that nothing is
        scheduled by the old amount meanwhile.

        Raises:
            ClusterError: like `Api.patch`.
        """
        amounts = {resource: None if amount is None else str(amount)}
        change = {"status": {"capacity": amounts, "allocatable": amounts}}
        return AGENT_NODES.trim(
            await self._api.patch(f"{AGENT_NODES.path}/{self.name}/status", change)
        )

    async def set_taints(self, taints: Sequence[Raw], version: str) -> Raw:
        """Set all taints of the node, if it still has this version; return the updated node.

        Raises:
            ClusterError: like `Api.patch`; of status 409 where the node has changed.
        """
        change = {"metadata": {"resourceVersion": version}, "spec": {"taints": list(taints)}}
        return await self._patch("", change)

    def record_event(
        self,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' name for it
        reason: str,
        message: str,
        pod: Reference | None = None,
    ) -> None:
        """Record an event on the node, or on a pod of it; returns at once and never raises."""
        reference = pod or Reference.node(self.name)
        self._recorder.record(reference, type=type, reason=reason, message=message)

    async def evict(self, pod: Reference) -> None:
        """Evict a pod, if its disruption budget allows it.

        Raises:
            ClusterError: like `Api.post`.
        """
        await self._api.post(
            f"{pod_path(pod.namespace, pod.name)}/eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}},
            },
        )

    async def _patch(self, part: str, change: Raw) -> Raw:
        path = f"{AGENT_NODES.path}/{self.name}{part}"
        return AGENT_NODES.trim(await self._api.patch(path, change))

    async def run(self) -> None:
        """Report changes to the handlers and write events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="events")
            for watch in self._reflectors:
                group.create_task(watch.run(), name=f"reflector {watch.resource.full_name}")
