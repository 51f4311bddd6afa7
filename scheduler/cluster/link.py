"""What the service needs of a cluster, be it a real one or the one in memory."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from scheduler.cluster import binding
from scheduler.cluster.api import Api, Raw
from scheduler.cluster.binding import Binding, BindResult
from scheduler.cluster.events import EventType, Recorder, Reference
from scheduler.cluster.reflector import Handler, Reflector
from scheduler.cluster.resource import FUNCTION_PROFILES, NODES, PODS, WORKFLOWS


@dataclass(frozen=True, slots=True)
class Handlers:
    """Who is told of what. None: that kind is not asked for, as when a folder has the documents."""

    nodes: Handler
    pods: Handler
    workflows: Handler | None = None
    profiles: Handler | None = None


class ClusterLink(Protocol):
    """The face that `LiveCluster` and `EmbeddedCluster` share."""

    async def bind(self, wanted: Binding, *, timeout_s: float) -> BindResult:
        """Bind a pod and put its grant on it, as `scheduler.cluster.binding.bind` does."""

    async def get_pod(
        self, namespace: str, name: str, *, timeout_s: float | None = None
    ) -> Raw | None:
        """The pod as the cluster has it now, past any cache; None if there is none.

        It takes ``timeout_s`` seconds at most; None: as long as any request may.

        Raises:
            ClusterError: it could not be read.
        """

    def record_event(
        self,
        reference: Reference,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' name for it
        reason: str,
        message: str,
    ) -> None:
        """Note an event on a pod or a node; returns at once and never raises."""

    def staleness_s(self) -> dict[str, float]:
        """For each resource that is watched, seconds since the server was last heard on it."""

    def troubles(self) -> dict[str, str]:
        """For each resource that is in trouble, what is wrong; empty when all is well."""

    def synced(self) -> bool:
        """Whether the first list of every resource has been handed over."""

    async def run(self) -> None:
        """Keep the handlers told, until cancelled."""


class LiveCluster:
    """A cluster behind an API server."""

    def __init__(
        self, api: Api, handlers: Handlers, *, reflector: Callable[..., Reflector] = Reflector
    ) -> None:
        self._api = api
        self._recorder = Recorder(api)
        told = (
            (NODES, handlers.nodes),
            (PODS, handlers.pods),
            (WORKFLOWS, handlers.workflows),
            (FUNCTION_PROFILES, handlers.profiles),
        )
        self._reflectors = [
            reflector(api, resource, handler) for resource, handler in told if handler is not None
        ]

    async def bind(self, wanted: Binding, *, timeout_s: float) -> BindResult:
        return await binding.bind(self._api, wanted, timeout_s=timeout_s)

    async def get_pod(
        self, namespace: str, name: str, *, timeout_s: float | None = None
    ) -> Raw | None:
        return await binding.get_pod(self._api, namespace, name, timeout_s=timeout_s)

    def record_event(
        self,
        reference: Reference,
        *,
        type: EventType,  # noqa: A002
        reason: str,
        message: str,
    ) -> None:
        self._recorder.record(reference, type=type, reason=reason, message=message)

    def staleness_s(self) -> dict[str, float]:
        return {each.resource.plural: each.staleness_s() for each in self._reflectors}

    def troubles(self) -> dict[str, str]:
        return {
            each.resource.plural: each.trouble
            for each in self._reflectors
            if each.trouble is not None
        }

    def synced(self) -> bool:
        return all(each.synced.is_set() for each in self._reflectors)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="events")
            for each in self._reflectors:
                group.create_task(self._follow(each), name=f"reflector {each.resource.full_name}")

    async def _follow(self, reflector: Reflector) -> None:
        if reflector.resource is PODS:
            # What a pod runs, and when its workflow is whole, stands in the documents. While they
            # cannot be listed the cluster is not synced, and their trouble says why.
            for each in self._reflectors:
                if each.resource in (WORKFLOWS, FUNCTION_PROFILES):
                    await each.synced.wait()
        await reflector.run()
