"""Holders of slices: created and ended by the scaler, and confirmed by the API server.

A holder that is to be ended, by the scaler or by anybody else, is deleted with a grace period of
one second when nothing runs in its slice any more. Until then its own grace period keeps the slice.
None is created while one is preempted, and for a while after: it would take the room again, before
the pod of higher priority is tried the next time.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple, Protocol

import structlog

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.events import RecordEvent, Reference
from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.slices import Slice, SliceKey, SliceStart
from scheduler.gateway.discovery.holder_pods import HolderPod
from scheduler.gateway.run_times import longest_run_s
from scheduler.gateway.scaling.open_slices import MARGIN_S, OpenSlices
from scheduler.gateway.scaling.pod_writes import PodClient, create_pod, delete_pod, refusal_text
from scheduler.gateway.scaling.slice_fence import SliceFence
from scheduler.gateway.scaling.slice_holder import (
    GRACE_S,
    SliceHolder,
    holder_object,
    new_holder_name,
)
from scheduler.gateway.serving.runtime import Runtime
from scheduler.model.documents import FunctionProfile
from scheduler.model.function_server import FunctionServer
from scheduler.model.names import LABEL_GATEWAY_GROUP, LABEL_POOL, POOL_HOLDER

log = structlog.get_logger(__name__)
REASON = "SliceStartFailed"
CONTACT_S = 5.0  # between two questions to the API server, which holders there are
RETRY_S = 1.0  # after one without an answer
CREATIONS_MAX = 16  # at a time, over all namespaces
END_GRACE_S = 1  # of a holder in which nothing runs
SEEN_MS = 60_000.0  # a pod that was created is reported long before
PREEMPTED_MS = 15_000.0  # kube-scheduler tries the pod that needs the room again within ten seconds
RUNNING_MS = 120_000.0  # in which a bound holder's container starts, its image pulled
_HOLDERS = f"{LABEL_POOL}={POOL_HOLDER}"


class HolderSettings(NamedTuple):
    """Settings of holders.

    Attributes:
        image: image with a shell; empty: there are no pools.
        namespace: the only namespace with holders; empty: all.
        scheduler_name: scheduler of holders, unless a template names one.
        room_ms: longest time until the scheduler has found a GPU.
        grace_max_s: longest time for which the share of a vanished pod stays reserved.
        selector: label selector of the objects of the gateway's group.
    """

    image: str
    namespace: str = ""
    scheduler_name: str = ""
    room_ms: float = 30_000.0
    grace_max_s: float = 35.0
    selector: str = f"!{LABEL_GATEWAY_GROUP}"


class SliceOutcomes(Protocol):
    """Receiver of what becomes of slices, as `scheduler.dispatch.scaling.scaler.Scaler`."""

    def slice_failed(self, start: SliceStart, now_ms: float) -> None:
        """Report a slice that found no room, or did not start."""

    def slice_proved(self, start: SliceStart) -> None:
        """Report a slice that has its room."""


class SliceHolders:
    """The holders of all namespaces that this process dispatches to.

    Args:
        runtime: runtime that gets the slices.
        client: client that creates, deletes and lists holders.
        outcomes: receiver of failures and successes.
        fence: fence of the pods in the slices.
        settings: settings of holders.
        record_event: records an Event; returns at once.
    """

    def __init__(  # noqa: PLR0913 - its collaborators, each by its name
        self,
        runtime: Runtime,
        client: PodClient,
        outcomes: SliceOutcomes,
        *,
        fence: SliceFence,
        settings: HolderSettings,
        record_event: RecordEvent,
    ) -> None:
        self._runtime = runtime
        self._client = client
        self._outcomes = outcomes
        self._fence = fence
        self._settings = settings
        self._record_event = record_event
        self._servers: dict[FunctionKey, FunctionServer] = {}  # with pooled pods of a template
        self._profiles: dict[FunctionKey, FunctionProfile] = {}
        self._holders: dict[tuple[str, str], SliceHolder] = {}
        self._preempted_until_ms: dict[tuple[str, str], float] = {}  # by namespace and GPU model
        self._changed = asyncio.Event()
        self._trouble = ""
        self.slices = OpenSlices(runtime, fence, settings.grace_max_s)

    def refusal(self, profile: FunctionProfile) -> str:
        """Return why pods of a function cannot run in slices; empty if they can."""
        if not self._settings.image:
            return (
                "the gateway has no image for holders of slices (ESG_GATEWAY_HOLDER_IMAGE); the "
                "chart gives it one with gateway.settings.share pooled, or with several replicas"
            )
        max_s = min(GRACE_S, self._settings.grace_max_s) - MARGIN_S - 2 * CONTACT_S
        if (run_s := longest_run_s(profile)) <= max_s:
            return ""
        return (
            f"its longest batch takes up to {run_s:.1f} s, and a slice that somebody deletes is "
            f"certain for {max_s:.1f} s; profile smaller batches"
        )

    # -- functions -------------------------------------------------------------------------------

    def set_server(
        self, server: FunctionServer, profile: FunctionProfile, *, is_pooled: bool
    ) -> None:
        """Add or change a server; ``is_pooled``: its template's new pods run in slices."""
        function = server.function_key
        self._profiles[function] = profile
        if is_pooled:
            self._servers[function] = server
            self.slices.set_function(function, profile)
        else:
            self._servers.pop(function, None)  # pods in slices may still run

    def servers(self) -> Iterable[FunctionServer]:
        """Return the servers whose templates' new pods run in slices."""
        return self._servers.values()

    def add_member(self, function: FunctionKey) -> None:
        """Add a pod in a slice; of any server, also one with a selector."""
        self.slices.set_function(function, self._profiles[function])

    def remove_server(self, function: FunctionKey) -> None:
        """Remove a function; Kubernetes deletes the holders with the last one of a namespace."""
        self.slices.remove_function(function)
        self._profiles.pop(function, None)
        server = self._servers.pop(function, None)
        namespace = function[0]
        if server is not None and not any(key[0] == namespace for key in self._servers):
            for holder in [h for h in self._holders.values() if h.namespace == namespace]:
                self._forget(holder)

    # -- decisions of the scaler -----------------------------------------------------------------

    def start(self, starts: Sequence[SliceStart]) -> None:
        """Create holders, less those of the namespace and GPU model that are on their way."""
        holders = self._holders.values()
        pending = Counter((h.namespace, h.gpu_model) for h in holders if self._is_pending(h))
        creations = sum(holder.pod is None for holder in holders)
        preempted = {(h.namespace, h.gpu_model) for h in holders if h.pod and h.pod.is_preempted}
        now_ms = self._runtime.now_ms()
        for start in starts:
            pool = start.namespace, start.gpu_model
            if pool in preempted or now_ms < self._preempted_until_ms.get(pool, -inf):
                continue
            if pending[pool] > 0:
                pending[pool] -= 1
            elif creations < CREATIONS_MAX:
                creations += self._create(start)

    def has_created(self, gpu_slice: Slice) -> bool:
        """Return true if this process has created all holders of a slice."""
        return all(holder.start is not None for holder in self._on(gpu_slice.key))

    def stop(self, ended: Slice) -> None:
        """Close a slice, and delete the holders that a gateway has created when it is idle."""
        for holder in self._on(ended.key):
            if holder.pod is not None and holder.pod.is_created_here:
                holder.is_ending = True
        self._update(ended.key)

    def _is_pending(self, holder: SliceHolder) -> bool:
        """Return true if a slice is still to be expected of it, or again."""
        gpu_slice = None if holder.pod is None else self.slices.get(holder.pod.slice_key)
        is_usable = not (holder.is_ending or holder.problem)
        return is_usable and (gpu_slice is None or gpu_slice.is_closed)

    def _create(self, start: SliceStart) -> bool:
        servers = [s for s in self._servers.values() if s.key[0] == start.namespace]
        if not servers:
            return False
        servers.sort(key=lambda server: (server.created, server.key))
        now_ms = self._runtime.now_ms()
        holder = SliceHolder(start.namespace, new_holder_name(), start, now_ms)
        body = holder_object(
            holder.name,
            start,
            servers,
            image=self._settings.image,
            scheduler_name=self._settings.scheduler_name,
        )
        self._holders[holder.namespace, holder.name] = holder
        holder.task = asyncio.get_running_loop().create_task(self._creating(holder, body))
        return True

    async def _creating(self, holder: SliceHolder, body: dict[str, Any]) -> None:
        error = await create_pod(self._client, holder.namespace, body)
        holder.task = None
        if error is not None:
            self._fail(holder, refusal_text(error, holder.namespace))

    # -- time ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Close slices that are not confirmed any more, and end holders that are to be ended."""
        now_ms = self._runtime.now_ms()
        for holder in list(self._holders.values()):
            if not holder.is_ending and (why := self._overdue_text(holder, now_ms)) is not None:
                self._fail(holder, why)
        keys = {gpu_slice.key for gpu_slice in self.slices.all()}
        for key in keys | {h.pod.slice_key for h in self._holders.values() if h.pod is not None}:
            self._update(key)
        for holder in list(self._holders.values()):
            if holder.is_ending and holder.task is None and not self._is_needed(holder):
                task = asyncio.get_running_loop().create_task(self._deleting(holder))
                holder.task = task

    def _overdue_text(self, holder: SliceHolder, now_ms: float) -> str | None:
        age_ms, pod = now_ms - holder.since_ms, holder.pod
        if pod is None:
            return "the API server has not reported it" if age_ms >= SEEN_MS else None
        if not pod.is_created_here or pod.is_running:
            return None
        if pod.problem:
            return pod.problem
        if not pod.gpu:
            reason = pod.unschedulable or "the scheduler has not said why; check that it runs"
            return f"no GPU has room for it: {reason}" if age_ms >= self._settings.room_ms else None
        late = age_ms >= self._settings.room_ms + RUNNING_MS
        return "its container has not started; see its Events" if late else None

    def _is_needed(self, holder: SliceHolder) -> bool:
        """Return true if what runs, or may run, would not fit into the other holders of the GPU."""
        if self._runtime.now_ms() < self.slices.settled_ms(holder):
            return True
        if holder.pod is None or (gpu_slice := self.slices.get(holder.pod.slice_key)) is None:
            return False
        others = (h.pod.percent for h in self._on(gpu_slice.key) if h.is_live and h.pod)
        return gpu_slice.used_percent > sum(others)

    async def _deleting(self, holder: SliceHolder) -> None:
        # The batches in the slice of another group are not known here: its grace period keeps it.
        grace_s = None if holder.problem else END_GRACE_S
        await delete_pod(self._client, holder.namespace, holder.name, holder.uid, grace_s=grace_s)
        if holder.pod is None:  # nothing was reported of it, so its end will not be
            self._forget(holder)

    def _fail(self, holder: SliceHolder, why: str) -> None:
        holder.is_ending = True
        if (start := holder.start) is None:
            log.warning("a slice's holder did not start", pod=holder.name, why=why)
            return
        self._outcomes.slice_failed(start, self._runtime.now_ms())
        message = (
            f"pod {holder.name}, which was to hold {start.percent} % of a {start.gpu_model} and "
            f"{start.cpus} vCPUs for the pool, did not start: {why}; another one "
            "is tried after a pause"
        )
        log.warning("slice did not start", namespace=holder.namespace, pod=holder.name, why=why)
        for server in self._servers.values():
            if server.key[0] == holder.namespace:
                reference = Reference.function_server(*server.key, server.metadata.uid)
                self._record_event(reference, type="Warning", reason=REASON, message=message)
                return

    # -- reports of the discovery ----------------------------------------------------------------

    def holder_changed(self, pod: HolderPod) -> None:
        """Take the state of a holder."""
        key = pod.namespace, pod.name
        holder = self._holders.get(key)
        if holder is not None and holder.uid not in {"", pod.uid}:
            self._forget(holder)
            holder = None
        if holder is None:
            holder = SliceHolder(pod.namespace, pod.name, None, self._runtime.now_ms())
            self._holders[key] = holder
        was_live = holder.is_live
        holder.pod = pod
        holder.is_ending = holder.is_ending or pod.is_ending
        if holder.is_live and not was_live:
            self._changed.set()
        self._update(pod.slice_key)

    def holder_gone(self, namespace: str, name: str) -> None:
        """Handle the deletion of a pod; any pod may be reported."""
        if (holder := self._holders.get((namespace, name))) is None:
            return
        if holder.pod is not None and holder.pod.is_preempted:
            until_ms = self._runtime.now_ms() + PREEMPTED_MS
            self._preempted_until_ms[namespace, holder.gpu_model] = until_ms
        self._forget(holder)

    def _forget(self, holder: SliceHolder) -> None:
        del self._holders[holder.namespace, holder.name]
        if holder.task is not None:
            holder.task.cancel()
        if holder.pod is not None:
            self._update(holder.pod.slice_key)

    def has_room(self, namespace: str, gpu: str, percent: int) -> bool:
        """Return true if a slice on a GPU exists, open or not, in which a member can ever run."""
        holders = [h for h in self._on((namespace, gpu)) if not (h.is_ending or h.problem)]
        return percent <= sum(holder.pod.percent for holder in holders if holder.pod)

    # -- the word of the API server ----------------------------------------------------------------

    async def follow(self) -> None:
        """Ask the API server which holders there are, until cancelled."""
        while True:
            self._changed.clear()
            is_confirmed = True
            if any(holder.is_live for holder in self._holders.values()):
                is_confirmed = await self._confirm()
            with suppress(TimeoutError):
                async with asyncio.timeout(CONTACT_S if is_confirmed else RETRY_S):
                    await self._changed.wait()

    async def _confirm(self) -> bool:
        sent_s = self._fence.clock_s()
        live = [holder for holder in self._holders.values() if holder.is_live]
        try:
            async with asyncio.timeout(CONTACT_S):
                labels = f"{_HOLDERS},{self._settings.selector}"
                uids = await self._client.live_uids(self._settings.namespace, labels)
        except (ClusterError, TimeoutError) as error:
            if not self._trouble:
                log.warning("slices are not confirmed, and will be closed", problem=repr(error))
            self._trouble = repr(error)
            return False
        self._trouble = ""
        for holder in live:
            holder.confirmed_s = sent_s if holder.uid in uids else -inf
        for key in {holder.pod.slice_key for holder in live if holder.pod}:
            self._update(key)
        return True

    def _on(self, key: SliceKey) -> list[SliceHolder]:
        return [h for h in self._holders.values() if h.pod is not None and h.pod.slice_key == key]

    def _update(self, key: SliceKey) -> None:
        live = [holder for holder in self._on(key) if holder.is_live]
        if key[1] and self.slices.update(key, live):
            for holder in live:
                if holder.start is not None and not holder.is_proven:
                    holder.is_proven = True
                    self._outcomes.slice_proved(holder.start)

    async def close(self) -> None:
        """End all tasks; pods stay, and the next process adopts them."""
        tasks = [holder.task for holder in self._holders.values() if holder.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
