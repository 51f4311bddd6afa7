"""A simulated kube-scheduler beside a replica: its queue, its time-outs and its preemption."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from scheduler.cluster.errors import ClusterError
from scheduler.extender.scheduling import Decision
from scheduler.extender.wire import (
    ExtenderBindingArgs,
    ExtenderPreemptionArgs,
    MetaPod,
    MetaVictims,
)
from scheduler.server.errors import RefusedError
from tests.campaign.audit import share_of
from tests.campaign.replica import Replica
from tests.campaign.simulated_server import SimulatedServer
from workbench.cluster.api_requests import NODES, PODS
from workbench.cluster.object_store import Key, ObjectChange, Raw

CALL_TIMEOUT_S = 5.0
BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 10.0)
FLUSH_S = 300.0  # podMaxInUnschedulablePodsDuration
_FAILURES = (RefusedError, ConnectionError, TimeoutError, ClusterError)


class SimulatedKubeScheduler:
    """Schedules pending pods through the extender of its replica while `lead` runs.

    As in kube-scheduler, one pod at a time is filtered and binds run beside it; a pod without a
    node waits for an event that may help it, at most `FLUSH_S`.
    """

    def __init__(self, server: SimulatedServer, replica: Replica) -> None:
        self._server = server
        self._replica = replica
        self._loop = asyncio.get_running_loop()
        self._queue: dict[Key, None] = {}  # a set in order
        self._parked: dict[Key, float] = {}  # since when
        self._failures: dict[str, int] = {}  # by UID
        self._binding: set[str] = set()  # UIDs
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_leading(self) -> bool:
        return bool(self._tasks)

    @property
    def is_busy(self) -> bool:
        """True while pods are queued or bound, or calls are open."""
        return bool(self._queue or self._binding) or len(self._tasks) > 2

    def lead(self) -> None:
        """Begin with all pending pods."""
        if self._tasks:
            return
        self._queue = dict.fromkeys(self._server.store.collection(PODS).objects)
        self._parked.clear()
        self._failures.clear()
        self._wake.set()
        self._start(self._run())
        self._start(self._flush())

    def stop(self) -> None:
        """End the process: its calls hang up."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._binding.clear()

    def observe(self, path: str, change: ObjectChange) -> None:
        """Take in a change of the server."""
        if not self._tasks:
            return
        if path == NODES or (path == PODS and change.after is None):
            self._unpark()
        elif path == PODS:
            metadata = change.after["metadata"]
            key = metadata["namespace"], metadata["name"]
            if change.before is None:
                self._add(key)
            elif share_of(change.before) and not share_of(change.after):
                self._unpark()
            elif change.before["metadata"].get("labels") != metadata.get("labels") and (
                self._parked.pop(key, None) is not None
            ):
                self._add(key)

    def _start(self, coroutine: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _add(self, key: Key) -> None:
        self._queue[key] = None
        self._wake.set()

    def _unpark(self) -> None:
        for key in self._parked:
            self._add(key)
        self._parked.clear()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(30.0)
            now_s = self._loop.time()
            for key in [key for key, s in self._parked.items() if now_s - s >= FLUSH_S]:
                del self._parked[key]
                self._add(key)

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            key = next(iter(self._queue))
            del self._queue[key]
            pod = self._pending(key)
            if pod is not None and pod["metadata"]["uid"] not in self._binding:
                await asyncio.sleep(self._server.latency_s(f"{self._replica.name} {key[1]}"))
                await self._schedule(key, pod)

    def _pending(self, key: Key) -> Raw | None:
        pod = self._server.store.collection(PODS).objects.get(key)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return None
        return pod

    async def _call(self, act: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call the extender; raises one of `_FAILURES`."""
        life = self._replica.life
        if life is None or not hasattr(life.service, "binder"):
            raise ConnectionError("connection refused")
        async with asyncio.timeout(CALL_TIMEOUT_S):
            return await life.call(lambda: act(life.service))

    async def _schedule(self, key: Key, pod: Raw) -> None:
        nodes = [name for _, name in self._server.store.collection(NODES).objects]
        try:
            decision = await self._call(lambda service: service.filter(pod, nodes))
            if decision.passing:
                self._binding.add(pod["metadata"]["uid"])
                self._start(self._bind(key, pod, decision.passing[0]))
                return
            preempted = await self._preempt(pod, decision)
        except _FAILURES:
            self._start(self._retry(key, pod["metadata"]["uid"]))
            return
        if self._pending(key) is not None and not preempted:
            self._parked[key] = self._loop.time()
        elif preempted:
            self._parked.setdefault(key, self._loop.time())

    async def _bind(self, key: Key, pod: Raw, node: str) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        args = ExtenderBindingArgs(
            PodName=metadata["name"], PodNamespace=metadata["namespace"], PodUID=uid, Node=node
        )
        try:
            await self._call(lambda service: service.bind(args))
        except _FAILURES:
            self._binding.discard(uid)
            if self._pending(key) is not None:
                await self._retry(key, uid)
        else:
            self._binding.discard(uid)
            if self._pending(key) is not None:  # of the same name, and created meanwhile
                self._add(key)

    async def _retry(self, key: Key, uid: str) -> None:
        failures = self._failures[uid] = self._failures.get(uid, -1) + 1
        await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
        self._add(key)

    async def _preempt(self, pod: Raw, decision: Decision) -> bool:
        """Evict pods of lower priority on one node; return True if some are evicted."""
        priority = pod["spec"].get("priority", 0)
        nodes = [name for name, refusal in decision.refusals.items() if refusal.resolvable]
        victims = {name: self._lowest(name, priority) for name in nodes}
        proposed = {
            name: MetaVictims(Pods=[MetaPod(UID=lowest["metadata"]["uid"])])
            for name, lowest in victims.items()
            if lowest is not None
        }
        if not proposed or _is_waiting_for_victims(pod, self._server):
            return False
        args = ExtenderPreemptionArgs(Pod=pod, NodeNameToMetaVictims=proposed)
        answer = await self._call(lambda service: service.preempt(args))
        if not answer:
            return False
        node = min(answer, key=lambda name: (len(answer[name].Pods or ()), name))
        uids = {victim.UID for victim in answer[node].Pods or ()}
        store = self._server.store
        evicted = [p for p in store.list(PODS) if p["metadata"]["uid"] in uids]
        metadata = pod["metadata"]
        if self._pending((metadata["namespace"], metadata["name"])) is None:
            return False
        store.patch(
            PODS,
            (metadata["namespace"], metadata["name"]),
            {"status": {"nominatedNodeName": node}},
        )
        for victim in evicted:
            self._server.delete_pod(victim["metadata"]["name"])
        return bool(evicted)

    def _lowest(self, node: str, priority: int) -> Raw | None:
        """Return the least important pod of a node below the priority."""
        lower = [
            pod
            for pod in self._server.store.list(PODS)
            if pod["spec"].get("nodeName") == node
            and share_of(pod) is not None
            and pod["spec"].get("priority", 0) < priority
        ]
        return min(
            lower, key=lambda p: (p["spec"].get("priority", 0), p["metadata"]["name"]), default=None
        )


def _is_waiting_for_victims(pod: Raw, server: SimulatedServer) -> bool:
    """Tell if victims of the pod's last preemption still terminate on its node."""
    node = (pod.get("status") or {}).get("nominatedNodeName")
    return node is not None and any(
        other["spec"].get("nodeName") == node and other["metadata"].get("deletionTimestamp")
        for other in server.store.list(PODS)
    )
