"""Pods of templates: created when the scaler decides it, warmed, and ended.

A pod counts from the decision to start it, so none is started twice for the same demand; the API
server's list after a restart shows those that exist. Its name is chosen here, so a creation without
an answer is repeated and makes one pod.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from scheduler.dispatch.pods import FunctionKey, Pod, PodStart, Share
from scheduler.dispatch.scaling.start_backoffs import StartBackoffs
from scheduler.gateway.discovery.holder_pods import HolderPod, is_member, unschedulable_text
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.scaling.pod_limits import DEFAULT_LIMITS, StartLimits, overdue_text
from scheduler.gateway.scaling.pod_writes import PodClient, create_pod, delete_pod, refusal_text
from scheduler.gateway.scaling.pool_pod import (
    PoolPod,
    failure_of,
    largest_row,
    new_name,
    pool_pod_object,
    share_of,
    warm_up_row,
)
from scheduler.gateway.scaling.slice_holders import SliceHolders
from scheduler.gateway.scaling.start_failures import StartFailures
from scheduler.gateway.scaling.warm_up import warm_up
from scheduler.gateway.scaling.warm_up_tokens import WarmUpTokens
from scheduler.gateway.serving.connected_pods import ConnectServer
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.serving.workflow_directory import no_cold_starts
from scheduler.model.documents import FunctionProfile
from scheduler.model.function_server import FunctionServer
from scheduler.model.names import LABEL_FUNCTION

CREATIONS_MAX = 16  # at a time, over all servers
_NO_SHARE = Share("", 1, 1, 1)


class StartOutcomes(Protocol):
    """Receiver of what becomes of starts, as `scheduler.dispatch.scaling.scaler.Scaler`."""

    @property
    def backoffs(self) -> StartBackoffs:
        """Pauses after starts that failed."""

    def start_failed(self, start: PodStart, now_ms: float, *, found_room: bool = False) -> None:
        """Report a pod that failed before it was ready; ``found_room``: it had a node."""

    def remove_function(self, function: FunctionKey) -> None:
        """Forget the limits and the share of a function whose server was removed."""


class _ServedFunction(NamedTuple):
    server: FunctionServer
    profile: FunctionProfile


class PodPools:
    """The pods of all templates; it stands between the discovery and the runtime.

    Args:
        runtime: runtime that gets the pods.
        client: client that creates and deletes pods.
        outcomes: receiver of failures and successes of starts.
        failures: reports of failed starts to the server's owner and to clients.
        holders: holders of the slices in which pooled pods run.
        connect: opens the client of a pod's model server, for its first batch.
        on_server: callback that gets an added or changed server, with a template or not.
        limits: longest times that a pod may take to start.
        scheduler_name: scheduler of pods whose template names none.
    """

    def __init__(  # noqa: PLR0913 - its collaborators, each by its name
        self,
        runtime: Runtime,
        client: PodClient,
        outcomes: StartOutcomes,
        failures: StartFailures,
        holders: SliceHolders,
        *,
        connect: ConnectServer,
        on_server: Callable[[FunctionServer, FunctionProfile], None],
        limits: StartLimits = DEFAULT_LIMITS,
        scheduler_name: str = "",
    ) -> None:
        self._runtime = runtime
        self._client = client
        self._outcomes = outcomes
        self._failures = failures
        self._holders = holders
        self._warm_up_tokens = WarmUpTokens(runtime)
        self._connect = connect
        self._limits = limits
        self._scheduler_name = scheduler_name
        self._on_server = on_server
        self._servers: dict[FunctionKey, _ServedFunction] = {}
        self._pods: dict[str, PoolPod] = {}
        self._deletions: dict[str, asyncio.Task[None]] = {}
        self._creations: set[asyncio.Task[None]] = set()
        runtime.set_cold_starts(self.refusal)

    # -- decisions of the scaler -----------------------------------------------------------------

    def has_created(self, pod: Pod) -> bool:
        """Return true if this process has created a pod."""
        pool_pod = self._pods.get(pod.name)
        return pool_pod is not None and not pool_pod.is_adopted

    def stop(self, pod: Pod) -> None:
        """Give a pod no further batches, and delete it after those that it has."""
        if (pool_pod := self._pods.get(pod.name)) is not None and not pool_pod.is_ending:
            self._end(pool_pod)

    def start(self, start: PodStart) -> None:
        """Create a pod, unless the server has its maximum."""
        function, share, pooled = start
        served = self._servers.get(function)
        if (
            served is None
            or len(self._creations) >= CREATIONS_MAX
            or self._count(function) >= served.server.spec.pods_max
        ):
            return
        server, profile = served
        pod = PoolPod(new_name(server), function, share, self._runtime.now_ms(), pooled)
        namespace, name = pod.key
        row = largest_row(profile, share)
        body = pool_pod_object(name, server, row, self._scheduler_name, pooled=pooled)
        self._expect(pod, profile)
        pod.task = self._task(self._create(pod, namespace, body))
        self._creations.add(pod.task)
        pod.task.add_done_callback(self._creations.discard)

    def _count(self, function: FunctionKey) -> int:
        """Return the number of pods that serve, or will."""
        pods = self._pods.values()
        return sum(1 for pod in pods if pod.function == function and not pod.is_ending)

    def _expect(self, pod: PoolPod, profile: FunctionProfile) -> None:
        self._pods[pod.name] = pod
        slots = self._servers[pod.function].server.spec.slots
        ready_ms = pod.since_ms + (profile.spec.cold_start_ms or 0.0)
        self._runtime.expect_pod(pod.name, pod.start, slots=slots, ready_ms=ready_ms)

    async def _create(self, pod: PoolPod, namespace: str, body: dict[str, Any]) -> None:
        error = await create_pod(self._client, namespace, body)  # `check` may end it
        if error is not None:
            pod.task = None  # it is this one, and need not be ended
            self._fail(pod, refusal_text(error, namespace))

    # -- time ------------------------------------------------------------------------------------

    def check(self) -> None:
        """End starts that take too long, and pods without a slice; delete those without a batch."""
        now_ms = self._runtime.now_ms()
        for pod in list(self._pods.values()):
            if pod.is_ending:
                if not self._runtime.is_running(pod.name):
                    self._delete(pod)
                continue
            pod.note_readiness(now_ms, is_ready=self._runtime.is_ready(pod.name))
            if (why := overdue_text(pod, self._limits, now_ms)) is not None:
                self._fail(pod, why)
            elif pod.proves_share(now_ms):
                self._outcomes.backoffs.proved(pod.start)
            elif pod.pooled and not self._has_slice(pod):
                self._end(pod)

    def _has_slice(self, pod: PoolPod) -> bool:
        """Return true if a slice exists for a pooled pod, or it has no GPU yet."""
        server_pod = pod.server_pod
        return server_pod is None or self._holders.has_room(
            server_pod.function[0], server_pod.gpu, server_pod.gpu_percent
        )

    # -- ends ------------------------------------------------------------------------------------

    def _end(self, pod: PoolPod) -> None:
        pod.is_ending = True
        pod.stop_task()
        self._runtime.drain_pod(pod.name)

    def _fail(self, pod: PoolPod, why: str) -> None:
        self._end(pod)
        self._runtime.remove_pod(pod.name)
        self._note_failure(pod, why)
        self._delete(pod)

    def _note_failure(self, pod: PoolPod, why: str) -> None:
        if (served := self._servers.get(pod.function)) is not None:
            now_ms = self._runtime.now_ms()
            self._outcomes.start_failed(pod.start, now_ms, found_room=pod.bound_ms is not None)
            pause_ms = self._outcomes.backoffs.paused_until_ms(pod.function, pod.share) - now_ms
            self._failures.add(served.server, pod.name, pod.share, why, pause_ms=pause_ms)

    def _delete(self, pod: PoolPod) -> None:
        if pod.name not in self._deletions:
            self._deletions[pod.name] = self._task(self._deleting(pod))

    async def _deleting(self, pod: PoolPod) -> None:
        await delete_pod(self._client, *pod.key, pod.uid)
        if not pod.uid:  # nothing was reported of it, so its end will not be
            self._forget(pod)

    def _forget(self, pod: PoolPod) -> None:
        pod.stop_task()
        self._pods.pop(pod.name, None)
        self._deletions.pop(pod.name, None)
        self._runtime.remove_pod(pod.name)

    # -- reports of the discovery ----------------------------------------------------------------

    def set_server(self, server: FunctionServer, profile: FunctionProfile) -> None:
        """Take a server, with a template or not."""
        self._runtime.set_server(server, profile)
        self._on_server(server, profile)
        served = self._servers.get(server.function_key)
        is_another = served is not None and served.server.metadata.uid != server.metadata.uid
        if is_another or server.spec.template is None:
            self._forget_function(server.function_key)
        if server.spec.template is not None:
            self._servers[server.function_key] = _ServedFunction(server, profile)

    def remove_server(self, function: FunctionKey) -> None:
        """Forget a server; Kubernetes deletes the pods that it owns."""
        self._forget_function(function)
        self._outcomes.remove_function(function)
        self._holders.remove_server(function)
        self._runtime.remove_server(function)

    def _forget_function(self, function: FunctionKey) -> None:
        if self._servers.pop(function, None) is not None:
            for pod in [pod for pod in self._pods.values() if pod.function == function]:
                self._forget(pod)
            self._failures.forget(function)
            self._outcomes.backoffs.forget(function)

    def pool_pod_changed(self, server: FunctionServer, raw: Mapping[str, Any]) -> None:
        """Take the state of a pod of a template; `add_pod` follows when it has an address."""
        metadata = raw["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        pod = self._pods.get(name)
        if pod is None:
            pod = self._adopted(name, server, raw)
            if pod is None:
                return
        now_ms = self._runtime.now_ms()
        pod.uid = metadata.get("uid") or ""
        pod.seen_ms = now_ms if pod.seen_ms is None else pod.seen_ms
        pod.unschedulable = unschedulable_text(raw)
        if pod.bound_ms is None and (raw.get("spec") or {}).get("nodeName"):
            pod.bound_ms = now_ms
        failure = failure_of(raw)
        if failure and not pod.is_ending:
            self._fail(pod, failure)

    def _adopted(self, name: str, server: FunctionServer, raw: Mapping[str, Any]) -> PoolPod | None:
        """Take a pod that this process has not created; None if it is being deleted."""
        function = server.function_key
        served = self._servers.get(function)
        if served is None or raw["metadata"].get("deletionTimestamp"):
            return None
        profile = served.profile
        labels = raw["metadata"].get("labels") or {}
        # The server's function may have changed since the pod was created.
        share = share_of(raw, profile) if labels.get(LABEL_FUNCTION) == function[1] else None
        now_ms, pooled = self._runtime.now_ms(), is_member(raw)
        pod = PoolPod(name, function, share or _NO_SHARE, now_ms, pooled, is_adopted=True)
        if share is None:
            self._pods[name] = pod
            self._end(pod)
            self._delete(pod)
        else:
            self._expect(pod, profile)
        return pod

    def pool_pod_gone(self, name: str) -> None:
        """Handle the deletion of a pod; any pod may be reported."""
        pod = self._pods.get(name)
        if pod is None:
            return
        self._forget(pod)
        if pod.serving_ms is None and not pod.is_ending:
            # A pod that serves is deleted with its node, and its share is not at fault.
            self._note_failure(pod, "it was deleted while it started")

    def add_pod(self, server_pod: ServerPod) -> None:
        """Take a pod that has an address; one of a template is warmed first."""
        pod = self._pods.get(server_pod.name)
        if server_pod.pooled:
            self._holders.add_member(server_pod.function)
        if pod is None:
            self._runtime.add_pod(server_pod)
            return
        pod.server_pod = server_pod
        is_draining = server_pod.draining or pod.is_ending
        self._runtime.add_pod(replace(server_pod, ready=False, draining=is_draining))
        if server_pod.ready and not is_draining:
            self._warm(pod)

    def pod_ready(self, name: str) -> None:
        """Handle the readiness of a pod's containers."""
        pod = self._pods.get(name)
        if pod is None or (pod.serving_ms is not None and not pod.is_ending):
            self._runtime.pod_ready(name)
        elif not pod.is_ending:
            self._warm(pod)

    def drain_pod(self, name: str) -> None:
        """Give a pod no further batches."""
        if (pod := self._pods.get(name)) is not None:
            pod.stop_task()
        self._runtime.drain_pod(name)

    def remove_pod(self, name: str) -> None:
        """Remove a pod that has no address any more."""
        if (pod := self._pods.get(name)) is not None:
            pod.stop_task()
            pod.server_pod = None
        self._runtime.remove_pod(name)

    def _warm(self, pod: PoolPod) -> None:
        pod.stop_task()
        pod.task = self._task(self._warming(pod))

    async def _warming(self, pod: PoolPod) -> None:
        server_pod = pod.server_pod
        assert server_pod is not None  # noqa: S101 - it has an address
        server, profile = self._servers[pod.function]
        client = self._connect(server_pod)
        try:
            row = warm_up_row(profile, server_pod.share)
            guarded = self._warm_up_tokens.client(server_pod, client, row.latency_ms)
            await warm_up(guarded, server.model, row.batch, pod=pod.name)
        finally:
            await client.close()
        pod.task = None
        pod.serving_ms = self._runtime.now_ms()
        self._runtime.pod_ready(pod.name)

    def holder_changed(self, holder: HolderPod) -> None:
        """Take the state of a holder of a slice."""
        self._holders.holder_changed(holder)

    def holder_gone(self, namespace: str, name: str) -> None:
        """Handle the deletion of a pod; any pod may be reported."""
        self._holders.holder_gone(namespace, name)

    def take_over(self, namespace: str, *, is_clean: bool) -> None:
        """Serve a namespace from now on; ``is_clean``: nothing runs on its pods."""
        self._holders.slices.take_over(namespace, is_clean=is_clean)

    # -- calls -----------------------------------------------------------------------------------

    def refusal(self, function: FunctionKey) -> str | None:
        """Return why a call cannot wait for a pod of a function; None if it can."""
        if function not in self._servers:
            return no_cold_starts(function)
        if self._count(function):
            return None
        is_paused = self._runtime.now_ms() < self._outcomes.backoffs.paused_until_ms(function)
        return self._failures.text(function) if is_paused else None

    # -- tasks -----------------------------------------------------------------------------------

    def _task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        """End all tasks; pods stay, and the next process adopts them."""
        tasks = [*self._deletions.values(), *(p.task for p in self._pods.values() if p.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
