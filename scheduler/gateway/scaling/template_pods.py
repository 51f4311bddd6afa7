"""Pods of templates for the gateway's process: pools, scaler and loop, over the cluster's link."""

import asyncio
from typing import Protocol

from scheduler.cluster.events import EventType, Reference
from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.scaling.scaler import PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import PodPrices
from scheduler.gateway.discovery.gpu_nodes import PerGpu
from scheduler.gateway.scaling.loop import ScalingLoop
from scheduler.gateway.scaling.pod_limits import StartLimits
from scheduler.gateway.scaling.pod_pools import PodClient, PodPools
from scheduler.gateway.scaling.start_failures import StartFailures
from scheduler.gateway.serving.connected_pods import ConnectServer
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.function_server import FunctionServer
from scheduler.model.plan import Prices

START_PAUSE_MS = (5_000.0, 300_000.0)  # after a pod that failed: first, and longest


class EventRecorder(Protocol):
    """Records Events, as `scheduler.cluster.events.Recorder`."""

    def record(
        self,
        reference: Reference,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' name for it
        reason: str,
        message: str,
    ) -> None:
        """Record an Event; returns at once."""


class PodLink(Protocol):
    """The part of a cluster's link that pods of templates need."""

    @property
    def pods(self) -> PodClient:
        """Creates and deletes pods."""

    @property
    def events(self) -> EventRecorder:
        """Records Events."""

    def synced(self) -> bool:
        """Return true if the first list of every resource has been passed on."""


class _LiveScaler:
    """The scaler on an event loop: a thread chooses shares, which takes tenths of a second."""

    def __init__(self, scaler: Scaler) -> None:
        self._scaler = scaler
        self.pod_changes = scaler.pod_changes

    async def choose_shares(self, now_ms: float) -> None:
        """Choose shares, where rates or documents require it."""
        for choice in self._scaler.share_choices(now_ms):
            self._scaler.set_shares(choice, await asyncio.to_thread(choice.sizes))


class TemplatePods:
    """Pods that the gateway creates and ends.

    Args:
        runtime: runtime that gets the pods.
        prices: prices of vCPUs and GPUs.
        server_context_mib: memory of each GPU that no pod gets.
        gateway: settings of the gateway.
        scheduler_name: scheduler of pods whose template names none.
        connect: opens the client of a pod's model server.
        link: connection to the cluster.

    Attributes:
        pools: pods of all templates, between discovery and runtime.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        runtime: Runtime,
        *,
        prices: Prices,
        server_context_mib: int,
        gateway: GatewaySettings,
        scheduler_name: str,
        connect: ConnectServer,
        link: PodLink,
    ) -> None:
        self._link = link
        self._prices = prices
        self._server_context_mib = server_context_mib
        self._cpus_per_gpu = gateway.cpus_per_gpu
        self._scaler = Scaler(
            runtime.dispatcher, PodPrices(prices, gateway.cpus_per_gpu), pause_ms=START_PAUSE_MS
        )
        self.pools = PodPools(
            runtime,
            link.pods,
            self._scaler,
            StartFailures(self._record_event),
            connect=connect,
            on_server=self._set_limits,
            limits=StartLimits(1000 * gateway.pod_room_s, 1000 * gateway.pod_start_s),
            scheduler_name=scheduler_name,
        )
        self._loop = ScalingLoop(
            runtime, self.pools, _LiveScaler(self._scaler), is_synced=link.synced
        )

    async def run(self) -> None:
        """Create and end pods until cancelled."""
        try:
            await self._loop.run()
        finally:
            await self.pools.close()

    def set_per_gpu(self, per_gpu: PerGpu) -> None:
        """Set the resources of GPU nodes; without vCPUs pods count as their price."""
        memory_mib = {
            model: total_mib - self._server_context_mib
            for model, total_mib in per_gpu.memory_mib.items()
        }
        cpus = self._cpus_per_gpu or per_gpu.vcpus
        self._scaler.set_prices(PodPrices(self._prices, cpus, memory_mib))

    def pods_wanted(self, function: FunctionKey) -> int:
        """Return the pods that the scaler wants for a function with a template."""
        return self._scaler.pods_wanted(function)

    # -- reports -------------------------------------------------------------------------------

    def _record_event(
        self, reference: Reference, kind: EventType, reason: str, message: str
    ) -> None:
        self._link.events.record(reference, type=kind, reason=reason, message=message)

    def _set_limits(self, server: FunctionServer) -> None:
        spec = server.spec
        limits = (
            PodLimits(max_pods=0)  # the pods of a selector are somebody else's
            if spec.template is None
            else PodLimits(
                min_pods=spec.pods_min,
                max_pods=spec.pods_max,
                keep_alive_ms=spec.keep_alive_ms,
            )
        )
        self._scaler.set_limits(server.function_key, limits)
