"""Pods of templates for the gateway's process: pools, scaler and loop, over the cluster's link."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from scheduler.cluster.events import RecordEvent, Reference
from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.scaling.scaler import PodChanges, PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import PodPrices
from scheduler.gateway.discovery.gpu_nodes import PerGpu
from scheduler.gateway.scaling.loop import ScalingLoop
from scheduler.gateway.scaling.pod_limits import StartLimits
from scheduler.gateway.scaling.pod_pools import PodPools
from scheduler.gateway.scaling.pod_writes import PodClient
from scheduler.gateway.scaling.slice_fence import SliceFence
from scheduler.gateway.scaling.slice_holders import HolderSettings, SliceHolders
from scheduler.gateway.scaling.start_failures import StartFailures
from scheduler.gateway.serving.connected_pods import ConnectServer
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.documents import FunctionProfile
from scheduler.model.function_server import FunctionServer
from scheduler.settings import Settings

log = structlog.get_logger(__name__)
NOT_POOLED = "NotPooled"
START_PAUSE_MS = (5_000.0, 300_000.0)  # after a pod that failed: first, and longest


class EventRecorder(Protocol):
    """Recorder of Events, as `scheduler.cluster.events.Recorder`."""

    @property
    def record(self) -> RecordEvent:
        """Records an Event."""


class PodLink(Protocol):
    """The part of a cluster's link that pods of templates need."""

    @property
    def pods(self) -> PodClient:
        """Creates, deletes and lists pods."""

    @property
    def events(self) -> EventRecorder:
        """Records Events."""

    def synced(self) -> bool:
        """Return true if the first list of every resource has been passed on."""


class _LiveScaler:
    """The scaler on an event loop: a thread chooses shares, which takes tenths of a second."""

    def __init__(self, scaler: Scaler, on_decision: Callable[[], None]) -> None:
        self._scaler = scaler
        self._on_decision = on_decision

    def pod_changes(self, now_ms: float) -> PodChanges:
        """Return pods and slices to start and to stop."""
        changes = self._scaler.pod_changes(now_ms)
        self._on_decision()
        return changes

    async def choose_shares(self, now_ms: float) -> None:
        """Choose shares, where rates or documents require it; a failed choice is repeated."""
        for choice in self._scaler.share_choices(now_ms):
            try:
                sizes = await asyncio.to_thread(choice.sizes)
            except Exception:
                log.exception("choice of shares failed", namespace=choice.namespace)
                self._scaler.choice_failed(choice)
            else:
                self._scaler.set_shares(choice, sizes)


class TemplatePods:
    """Pods that the gateway creates and ends.

    Args:
        runtime: runtime that gets the pods.
        settings: settings of planning.
        gateway: settings of the gateway.
        slice_fence: fence of the pods in slices.
        connect: opens the client of a pod's model server.
        link: connection to the cluster.

    Attributes:
        pools: pods of all templates, between discovery and runtime.
        holders: holders of the slices of the pools.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        runtime: Runtime,
        *,
        settings: Settings,
        gateway: GatewaySettings,
        slice_fence: SliceFence,
        connect: ConnectServer,
        link: PodLink,
    ) -> None:
        self._record_event = link.events.record
        self._prices = settings.prices
        self._server_context_mib = settings.server_context_mib
        self._default_share = gateway.share
        self._reserved_reasons: dict[FunctionKey, tuple[str, str]] = {}  # with the server's UID
        self._cpus_per_gpu = gateway.cpus_per_gpu
        self._scaler = Scaler(
            runtime.dispatcher,
            PodPrices(settings.prices, gateway.cpus_per_gpu),
            slices_min=gateway.pool_gpus,
            pause_ms=START_PAUSE_MS,
        )
        self.holders = SliceHolders(
            runtime,
            link.pods,
            self._scaler,
            fence=slice_fence,
            settings=HolderSettings(
                gateway.holder_image,
                namespace=gateway.namespace,
                scheduler_name=settings.scheduler_name,
                room_ms=1000 * gateway.pod_room_s,
                grace_max_s=settings.deletion_grace_max_s,
                selector=gateway.group_selector,
            ),
            record_event=self._record_event,
        )
        self.pools = PodPools(
            runtime,
            link.pods,
            self._scaler,
            StartFailures(self._record_event),
            self.holders,
            connect=connect,
            on_server=self._set_limits,
            limits=StartLimits(1000 * gateway.pod_room_s, 1000 * gateway.pod_start_s),
            scheduler_name=settings.scheduler_name,
        )
        self._loop = ScalingLoop(
            runtime,
            self.pools,
            self.holders,
            _LiveScaler(self._scaler, self._report_notes),
            is_synced=link.synced,
        )

    async def run(self) -> None:
        """Create and end pods until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._loop.run())
                group.create_task(self.holders.follow())
        finally:
            await self.pools.close()
            await self.holders.close()

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

    def _set_limits(self, server: FunctionServer, profile: FunctionProfile) -> None:
        spec = server.spec
        pooled = self._is_pooled(server, profile)
        self.holders.set_server(server, profile, is_pooled=pooled)
        limits = (
            PodLimits(max_pods=0)  # the pods of a selector are somebody else's
            if spec.template is None
            else PodLimits(
                min_pods=spec.pods_min,
                max_pods=spec.pods_max,
                keep_alive_ms=spec.keep_alive_ms,
                pooled=pooled,
            )
        )
        self._scaler.set_limits(server.function_key, limits)

    def _is_pooled(self, server: FunctionServer, profile: FunctionProfile) -> bool:
        """Return true if the pods of a template run in slices; record why they do not."""
        spec = server.spec
        if spec.template is None or (spec.share or self._default_share) != "pooled":
            return False
        reason = self.holders.refusal(profile)
        self._report_reserved(server, reason)
        return not reason

    def _report_notes(self) -> None:
        """Record where the scaler has pooled functions hold their shares."""
        for server in self.holders.servers():
            self._report_reserved(server, self._scaler.pool_notes(server.key[0]))

    def _report_reserved(self, server: FunctionServer, reason: str) -> None:
        uid = server.metadata.uid
        if self._reserved_reasons.get(server.function_key) == (uid, reason):
            return
        self._reserved_reasons[server.function_key] = uid, reason
        if reason:
            reference = Reference.function_server(*server.key, uid)
            message = f"its pods are reserved, not pooled: {reason}"
            self._record_event(reference, type="Warning", reason=NOT_POOLED, message=message)
