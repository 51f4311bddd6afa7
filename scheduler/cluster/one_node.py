"""One node and its pods: what that node's agent hears, and the few things that it writes.

What the agents of many nodes ask is kept apart by field selectors, so each hears of its own node
and its own pods alone, as a kubelet does.
"""

import asyncio
import re
from collections.abc import Callable, Mapping

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.events import EventType, Recorder, Reference
from scheduler.cluster.reflector import Handler, Reflector
from scheduler.cluster.resource import NODES, PODS

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)


class OneNode:
    """A node behind an API server.

    Args:
        api: the API server.
        name: the node's name.
        node: told of the node; where it is not (yet) registered, of none.
        pods: told of the pods that are bound to it.
        reflector: what keeps them told.

    Raises:
        ClusterConfigError: no node can have such a name.
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
                f"{name!r} cannot be the name of a node; give the Node object's metadata.name"
            )
        self.name = name
        self._api = api
        self._recorder = Recorder(api)
        self._reflectors = [
            reflector(api, NODES, node, field_selector=f"metadata.name={name}"),
            reflector(api, PODS, pods, field_selector=f"spec.nodeName={name}"),
        ]

    async def annotate(self, annotations: Mapping[str, str]) -> Raw:
        """Set annotations of the node, leaving all others; the node as it is then, trimmed.

        Raises:
            ClusterError: as `Api.patch`.
        """
        change = {"metadata": {"annotations": dict(annotations)}}
        return NODES.trim(await self._api.patch(f"{NODES.path}/{self.name}", change))

    async def set_capacity(self, resource: str, amount: int) -> Raw:
        """Set how much of an extended resource the node has; the node as it is then, trimmed.

        A kubelet would copy the capacity to what is allocatable at its next look; here it is done
        at once, so that nobody schedules by the old amount meanwhile.

        Raises:
            ClusterError: as `Api.patch`.
        """
        has = {resource: str(amount)}
        change = {"status": {"capacity": has, "allocatable": has}}
        return NODES.trim(await self._api.patch(f"{NODES.path}/{self.name}/status", change))

    def record_event(self, *, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - Kubernetes' name for it
        """Note an event on the node; returns at once and never raises."""
        self._recorder.record(Reference.node(self.name), type=type, reason=reason, message=message)

    def troubles(self) -> dict[str, str]:
        """For each resource that is in trouble, what is wrong; empty when all is well."""
        return {
            each.resource.plural: each.trouble
            for each in self._reflectors
            if each.trouble is not None
        }

    def synced(self) -> bool:
        """Whether the first list of each has been handed over."""
        return all(each.synced.is_set() for each in self._reflectors)

    async def run(self) -> None:
        """Keep the handlers told and write the events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="events")
            for each in self._reflectors:
                group.create_task(each.run(), name=f"reflector {each.resource.full_name}")
