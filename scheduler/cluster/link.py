"""The service's interface to a cluster."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from scheduler.cluster import binding
from scheduler.cluster.api import Api, Raw
from scheduler.cluster.binding import Binding, BindResult
from scheduler.cluster.claim_writer import ClaimWriter
from scheduler.cluster.events import Recorder, RecordEvent
from scheduler.cluster.leases import LeaseClient
from scheduler.cluster.object_list import list_all
from scheduler.cluster.owner_lease import (
    LEASE_LABELS,
    STATUS_LEASE_NAME,
    OwnerLease,
    boottime_s,
)
from scheduler.cluster.reflector import PAGE, Handler, Reflector
from scheduler.cluster.reflector_group import ReflectorGroup
from scheduler.cluster.resource import (
    CLAIMS,
    DISRUPTION_BUDGETS,
    FUNCTION_PROFILES,
    NODES,
    PODS,
    WORKFLOWS,
)
from scheduler.cluster.status_writer import StatusWriter


@dataclass(frozen=True, slots=True)
class Handlers:
    """Receivers by kind. None: that kind is not watched."""

    nodes: Handler | None = None
    pods: Handler | None = None
    workflows: Handler | None = None
    profiles: Handler | None = None
    disruption_budgets: Handler | None = None


class ClusterLink(Protocol):
    """A cluster as a service sees it, such as `LiveCluster`.

    Attributes:
        owner_lease: lease of the process that binds pods; None: there is no other process.
        status_lease: lease of the process that writes statuses; None: there is no other process.
        statuses: writes statuses of documents; None: nobody reads them.
    """

    owner_lease: OwnerLease | None
    status_lease: OwnerLease | None
    statuses: StatusWriter | None

    def follow(self, handlers: Handlers) -> None:
        """Add receivers of the cluster's objects, each kind once, before `run`."""

    async def bind(self, request: Binding, *, timeout_s: float) -> BindResult:
        """Bind a pod and write its grant, like `scheduler.cluster.binding.bind`."""

    async def get_pod(
        self, namespace: str, name: str, *, timeout_s: float | None = None
    ) -> Raw | None:
        """Read the pod from the cluster, not from a cache; None if it does not exist.

        It takes at most ``timeout_s`` seconds; None: the limit of any request.

        Raises:
            ClusterError: it cannot be read.
        """

    async def void_bindings(
        self, namespace: str, name: str, version: str, *, timeout_s: float | None = None
    ) -> Raw | None:
        """Make void all Bindings that name this version of a pod; return the pod, trimmed.

        It is like `scheduler.cluster.binding.void_bindings`.
        """

    async def list_pods(self) -> tuple[Iterable[Raw], int]:
        """List all pods, trimmed, next to the watch; return them and the version of the list.

        Raises:
            ClusterError: they cannot be listed.
        """

    async def relist_pods(self) -> None:
        """Return when a list of all pods that began after this call has been passed on."""

    @property
    def record_event(self) -> RecordEvent:
        """Function that records an Event on a pod or a node."""

    def staleness_s(self) -> dict[str, float]:
        """Map each watched resource to the seconds since the server's last answer about it."""

    def unwritten_claims(self) -> int:
        """Count the pods whose resource claim is not written."""

    def troubles(self) -> dict[str, str]:
        """Map each failing resource to its failure; empty if all work."""

    def synced(self) -> bool:
        """Return true if the first list of every resource has been passed on."""

    async def run(self) -> None:
        """Report changes to the handlers until cancelled."""


class LiveCluster(ReflectorGroup):
    """A cluster behind an API server.

    Args:
        lease_namespace: namespace of the Leases; empty: there are none.
        lease_timeout_s: time limit of a request for a Lease, in seconds.
        resource_claims: true to create the resource claims of pods that have not started.
        lease_clock: clock of the Leases' validity, in seconds.
        reflector: factory of the reflectors.
        monotonic: clock of all waiting times, in seconds.
    """

    def __init__(  # noqa: PLR0913
        self,
        api: Api,
        *,
        lease_namespace: str = "",
        lease_timeout_s: float = 1.0,
        resource_claims: bool = False,
        lease_clock: Callable[[], float] = boottime_s,
        reflector: Callable[..., Reflector] = Reflector,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._api = api
        self._provides_claims = resource_claims
        self._claims: ClaimWriter | None = None
        self._reflector = reflector
        self._monotonic = monotonic
        self._recorder = Recorder(api, clock=monotonic)
        self.record_event: RecordEvent = self._recorder.record
        self.statuses: StatusWriter | None = StatusWriter(
            api, self.record_event, monotonic=monotonic
        )
        self.owner_lease = self.status_lease = None
        if lease_namespace:
            leases = LeaseClient(api, lease_namespace, LEASE_LABELS, timeout_s=lease_timeout_s)
            self.owner_lease = OwnerLease(leases, clock=lease_clock)
            self.status_lease = OwnerLease(leases, clock=lease_clock, name=STATUS_LEASE_NAME)

    def follow(self, handlers: Handlers) -> None:
        pods, claims = handlers.pods, None
        if pods is not None and self._provides_claims:
            pods = self._claims = ClaimWriter(self._api, pods)
            claims = pods.observer
        watched = (
            (NODES, handlers.nodes),
            (PODS, pods),
            (WORKFLOWS, handlers.workflows),
            (FUNCTION_PROFILES, handlers.profiles),
            (DISRUPTION_BUDGETS, handlers.disruption_budgets),
            (CLAIMS, claims),
        )
        self._reflectors += [
            self._reflector(self._api, resource, handler, clock=self._monotonic)
            for resource, handler in watched
            if handler is not None
        ]

    async def bind(self, request: Binding, *, timeout_s: float) -> BindResult:
        return await binding.bind(self._api, request, timeout_s=timeout_s, clock=self._monotonic)

    async def get_pod(
        self, namespace: str, name: str, *, timeout_s: float | None = None
    ) -> Raw | None:
        return await binding.get_pod(self._api, namespace, name, timeout_s=timeout_s)

    async def void_bindings(
        self, namespace: str, name: str, version: str, *, timeout_s: float | None = None
    ) -> Raw | None:
        pod = await binding.void_bindings(self._api, namespace, name, version, timeout_s=timeout_s)
        return None if pod is None else PODS.trim(pod)

    async def list_pods(self) -> tuple[Iterable[Raw], int]:
        pods, version = await list_all(self._api, PODS, selectors={}, page=PAGE)
        return pods, int(version)

    async def relist_pods(self) -> None:
        await next(watch for watch in self._reflectors if watch.resource is PODS).relist()

    def unwritten_claims(self) -> int:
        return 0 if self._claims is None else self._claims.unwritten_count()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="events")
            if self._claims is not None:
                group.create_task(self._claims.run(), name="resource claims")
            for watch in self._reflectors:
                name = f"reflector {watch.resource.full_name}"
                group.create_task(self._run_watch(watch), name=name)

    async def _run_watch(self, reflector: Reflector) -> None:
        if reflector.resource is PODS:
            # The documents say what a pod runs and when its workflow is complete. While they cannot
            # be listed, the cluster is not synced, and their trouble says why. A list of claims
            # that is older than what is written for pods would have them written twice.
            for watch in self._reflectors:
                if watch.resource in (WORKFLOWS, FUNCTION_PROFILES, CLAIMS):
                    await watch.synced.wait()
        await reflector.run()
