"""A simulated kube-scheduler beside a replica: its queue, its time-outs and its preemption."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from scheduler.cluster.errors import ClusterError
from scheduler.extender.wire import (
    ExtenderBindingArgs,
    ExtenderPreemptionArgs,
    MetaPod,
    MetaVictims,
)
from scheduler.server.errors import RefusedError
from tests.campaign.audit import share_of
from tests.campaign.gangs import domains_of, gang_of, minimum_of
from tests.campaign.node_sums import NodeSums, is_waiting_for_victims
from tests.campaign.replica import Replica
from tests.campaign.simulated_server import SimulatedServer
from workbench.cluster.api_requests import NODES, PODS, ApiTarget
from workbench.cluster.object_store import Key, ObjectChange, Raw

POOL = "esg-scheduler.io/pool"
CALL_TIMEOUT_S = 5.0
BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 10.0)
FLUSH_S = 300.0  # podMaxInUnschedulablePodsDuration
_FAILURES = (RefusedError, ConnectionError, TimeoutError, ClusterError)


class SimulatedKubeScheduler:
    """Schedules pending pods through the extender of its replica while `lead` runs.

    As in kube-scheduler, one pod at a time is filtered and binds run beside it; a pod without a
    node waits for an event that may help it, at most `FLUSH_S`. Such events are those of releases
    before 1.32: later ones also try a pod that the extender has refused when any pod changes, which
    would hide a refusal that should not have been. All members of a gang are filtered before one is
    bound, in a pass for each set of nodes where they may be.
    """

    def __init__(self, server: SimulatedServer, replica: Replica) -> None:
        self._server = server
        self._replica = replica
        self._loop = asyncio.get_running_loop()
        self._queue: dict[Key, None] = {}  # a set in order
        self._parked: dict[Key, float] = {}  # since when
        self._failures: dict[str, int] = {}  # by UID
        self._binding: dict[str, str] = {}  # nodes by UID
        self._notes_lost_until_s = 0.0
        self._reverts = 0  # successful attempts of gangs to give up
        self._moves = 0  # number of events that may have helped parked pods
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

    def lose_notes(self, seconds: float) -> None:
        """Let the writes of reasons into the status of pods fail for a time."""
        self._notes_lost_until_s = self._loop.time() + seconds

    def revert(self, times: int) -> None:
        """Give up the next attempts of gangs that succeed, as if a plugin refused them."""
        self._reverts += times

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
            elif metadata["labels"].get(POOL) == "holder":
                self._unpark()  # members may wait for it
            elif change.before["metadata"].get("labels") != metadata.get("labels") and (
                self._parked.pop(key, None) is not None
            ):
                self._add(key)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(coroutine, context=self._replica.machine.context)
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
        self._moves += 1
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
                await (self._schedule_gang(pod) if gang_of(pod) else self._schedule(key, pod))

    def _pending(self, key: Key) -> Raw | None:
        pod = self._server.store.collection(PODS).objects.get(key)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return None
        return pod

    async def _call(self, act: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """Call the extender; raises one of `_FAILURES`."""
        life = self._replica.life
        if life is None or not hasattr(life.service, "binder"):
            raise ConnectionError("connection refused")
        async with asyncio.timeout(CALL_TIMEOUT_S):
            return await life.call(lambda: act(life.service))

    async def _schedule(self, key: Key, pod: Raw) -> None:
        uid, moves = pod["metadata"]["uid"], self._moves
        nodes = NodeSums(self._server.store, pod, self._binding)
        fitting = [name for name in nodes.names if nodes.fits(name)]
        resolvable = [name for name in nodes.names if name not in fitting]
        try:
            if fitting:
                decision = await self._call(lambda service: service.filter(pod, fitting))
                if decision.passing:
                    self._binding[uid] = decision.passing[0]
                    self._start(self._bind(key, pod, decision.passing[0]))
                    return
                resolvable += [n for n, refusal in decision.refusals.items() if refusal.resolvable]
            await self._preempt(key, pod, resolvable)
        except _FAILURES as error:
            self._note_failure(pod, str(error))
            self._nominate(key, uid, None)
            self._start(self._retry(key, uid))
            return
        if self._pending(key) is None:
            return
        self._note_failure(pod, f"0 of {len(nodes.names)} nodes can hold the pod")
        if self._moves == moves:
            self._parked[key] = self._loop.time()
        else:  # an event during the attempt counts, too
            self._start(self._retry(key, uid))

    async def _schedule_gang(self, first: Raw) -> None:
        """Filter all members before one is bound; bind them if enough of them fit."""
        moves = self._moves
        pods = [p for p in self._server.store.list(PODS) if gang_of(p) == gang_of(first)]
        members = self._take_pending(pods)
        bound = sum(share_of(p) is not None or p["metadata"]["uid"] in self._binding for p in pods)
        needed = max(1, minimum_of(first) - bound)
        placed: dict[Key, str] = {}
        message, has_failed = f"fewer than {needed} pods of the gang have a node", False
        try:
            for domain in domains_of(first, NodeSums(self._server.store, first, {}).names):
                placed = await self._pass(members, domain)
                if len(placed) >= needed:
                    break
        except _FAILURES as error:
            message, has_failed = str(error), True
        is_placed = len(placed) >= needed and not has_failed
        if is_placed and self._reverts:
            self._reverts -= 1
            is_placed, has_failed = False, True
        for key, pod in members.items():
            uid = pod["metadata"]["uid"]
            if is_placed and key in placed:
                self._binding[uid] = placed[key]
                self._start(self._bind(key, pod, placed[key]))
                continue
            self._note_failure(pod, message)
            if has_failed or self._moves != moves:
                self._start(self._retry(key, uid))
            else:
                self._parked[key] = self._loop.time()

    def _take_pending(self, pods: Sequence[Raw]) -> dict[Key, Raw]:
        """Take those of the pods out of the queue that wait, by key."""
        members = {}
        for stored in pods:
            key = stored["metadata"]["namespace"], stored["metadata"]["name"]
            pod = self._pending(key)
            if pod is not None and pod["metadata"]["uid"] not in self._binding:
                members[key] = pod
                self._queue.pop(key, None)
                self._parked.pop(key, None)
        return members

    async def _pass(self, members: Mapping[Key, Raw], domain: list[str]) -> dict[Key, str]:
        """Filter the members one after another; return their nodes, which are not theirs yet."""
        placed: dict[Key, str] = {}
        try:
            for key, pod in members.items():
                sums = NodeSums(self._server.store, pod, self._binding)
                fitting = [node for node in domain if node in sums.names and sums.fits(node)]
                if not fitting:
                    continue
                decision = await self._call(lambda service, p=pod, n=fitting: service.filter(p, n))
                if decision.passing:
                    placed[key] = self._binding[pod["metadata"]["uid"]] = decision.passing[0]
        finally:
            for key in placed:
                self._binding.pop(members[key]["metadata"]["uid"], None)
        return placed

    async def _bind(self, key: Key, pod: Raw, node: str) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        args = ExtenderBindingArgs(
            PodName=metadata["name"], PodNamespace=metadata["namespace"], PodUID=uid, Node=node
        )
        try:
            await self._call(lambda service: service.bind(args))
        except _FAILURES as error:
            self._binding.pop(uid, None)
            self._unpark()  # its place is free for others
            self._note_failure(pod, str(error))
            if self._pending(key) is not None:
                await self._retry(key, uid)
        else:
            self._binding.pop(uid, None)
            if self._pending(key) is not None:  # of the same name, and created meanwhile
                self._add(key)

    def _note_failure(self, pod: Raw, message: str) -> None:
        """Write the reason of a failed attempt into the pod's status, if it is a new one."""
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["name"]
        pending = self._pending(key)
        if pending is None or pending["metadata"]["uid"] != metadata["uid"]:
            return
        if self._loop.time() < self._notes_lost_until_s:
            return
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        if condition not in ((pending.get("status") or {}).get("conditions") or ()):
            target = ApiTarget(PODS, *key, "status")
            self._server.requests.object("PATCH", target, {"status": {"conditions": [condition]}})

    async def _retry(self, key: Key, uid: str) -> None:
        failures = self._failures[uid] = self._failures.get(uid, -1) + 1
        await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
        self._add(key)

    async def _preempt(self, key: Key, pod: Raw, candidates: Sequence[str]) -> None:
        """Evict pods of lower priority on one node and nominate it, or end an old nomination."""
        store, uid = self._server.store, pod["metadata"]["uid"]
        if is_waiting_for_victims(pod, store):
            return
        nodes = NodeSums(store, pod, self._binding)
        existing = [name for name in candidates if name in nodes.names]
        victims = {name: nodes.victims(name) for name in existing}
        proposed = {
            name: MetaVictims(Pods=[MetaPod(UID=uid) for uid in uids])
            for name, uids in victims.items()
            if uids
        }
        answer: dict[str, MetaVictims] = {}
        if proposed:
            args = ExtenderPreemptionArgs(Pod=pod, NodeNameToMetaVictims=proposed)
            answer = await self._call(lambda service: service.preempt(args))
        if not answer:
            self._nominate(key, uid, None)
            return
        node = min(answer, key=lambda name: (len(answer[name].Pods or ()), name))
        chosen = {victim.UID for victim in answer[node].Pods or ()}
        for victim in store.list(PODS):
            if victim["metadata"]["uid"] in chosen:
                self._server.delete_pod(victim["metadata"]["name"])
        for nominated in nodes.nominated(node, lower=True):
            metadata = nominated["metadata"]
            self._nominate((metadata["namespace"], metadata["name"]), metadata["uid"], None)
        self._nominate(key, uid, node)

    def _nominate(self, key: Key, uid: str, node: str | None) -> None:
        pod = self._pending(key)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if (pod.get("status") or {}).get("nominatedNodeName") != node:
            self._server.store.patch(PODS, key, {"status": {"nominatedNodeName": node}})
