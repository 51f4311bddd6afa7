"""Guard against refusals from a stale cache.

kube-scheduler and the extender follow the API server by separate watches. When capacity becomes
free, kube-scheduler retries a pending pod within a millisecond, and the extender may learn of it a
few milliseconds later. A pod refused in between is retried only at the next event: in a quiet
cluster five minutes later (kube-scheduler's podMaxInUnschedulablePodsDuration). So a pod is refused
on all nodes only from a cache that is at least as new as the request:

- The pod in the request has a resourceVersion. Until the cache has reached it, the cache is stale.
  If the watch does not deliver it soon, the pods are listed.
- A pod that waits for its victims is tried again when the last of them has ended. If it is refused
  then, kube-scheduler ends its nomination, and later evicts others. So the victims that the cache
  still has are read. If one has ended, the cache is stale.
- The share of a pod that vanished stays reserved for its grace period, and no event shows its end.
  If the pod would fit without such shares, the answer is an error, too.
- If an unchanged pod comes again, and no event since its last refusal could have freed capacity, an
  event that the extender has not received yet triggered the retry. If it does not arrive soon, the
  answer is an error instead of a refusal: after an error kube-scheduler retries by itself, after
  its back-off of a second or more.

A member of a gang never gets such an error: it would end the attempt for all members, although
those that fit may suffice. kube-scheduler tries the gang again when any pod changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from scheduler.cluster.api import Raw
from scheduler.cluster.errors import ClusterError
from scheduler.extender.promises import gang_of
from scheduler.extender.scheduling import Decision, Scheduler
from scheduler.ledger.reservation import Reservation
from scheduler.model.pod import has_ended
from scheduler.planning.pods import PendingPod, version_of
from scheduler.planning.state import State
from scheduler.server.errors import RefusedError

# Longest delays of an answer, in seconds: kube-scheduler does nothing else meanwhile.
STALE_WAIT_S = 0.5
RELIST_WAIT_S = 2.0
UNEXPLAINED_WAIT_S = 0.05
_PAUSE_S = 0.002
_REMEMBERED_MIN = 1_000  # refusals of pods that are pending no longer


class RefusalGuard:
    """Checks refusals on all nodes; it remembers the state at each pod's last refusal.

    ``relist`` returns when a list of the pods that began after its call is in the state, and
    ``read_pod`` reads one by namespace and name, None if it does not exist.
    """

    def __init__(
        self,
        state: State,
        scheduler: Scheduler,
        *,
        relist: Callable[[], Awaitable[None]],
        read_pod: Callable[[str, str], Awaitable[Raw | None]],
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._relist = relist
        self._read_pod = read_pod
        self._refused_at: dict[str, tuple[int, int]] = {}
        self._waited_at = -1  # the capacity epoch for which an answer was delayed

    async def check(self, pod: PendingPod, nodes: Sequence[str], decision: Decision) -> Decision:
        """Return the decision to answer with in place of ``decision``, which refuses all nodes.

        Raises:
            RefusedError: the cache is stale; kube-scheduler retries after its back-off.
        """
        try:
            return await self._check(pod, nodes, decision)
        except RefusedError:
            if gang_of(pod) is None:
                raise
            return decision

    async def _check(self, pod: PendingPod, nodes: Sequence[str], decision: Decision) -> Decision:
        state = self._state
        version = version_of(pod.raw)
        if version == 0:  # not from an API server
            return decision
        if state.pods.version < version:
            if not await self._wait_for(lambda: state.pods.version >= version, STALE_WAIT_S):
                await self._list_pods()
            decision = self._scheduler.schedule(pod, nodes)
        if not decision.passing and (ended := await self._unseen_ends(pod)):
            ledger = state.ledger
            if not await self._wait_for(
                lambda: not any(map(ledger.reservation, ended)), STALE_WAIT_S
            ):
                await self._list_pods()
            decision = self._scheduler.schedule(pod, nodes)
        if not decision.passing:
            self._require_no_wait(pod, nodes, decision)
        refused_at = state.ledger.free_capacity_epoch, version
        if not decision.passing and self._refused_at.get(pod.uid) == refused_at:
            decision = await self._unexplained(pod, nodes, decision)
        if not decision.passing:
            self._refused_at[pod.uid] = state.ledger.free_capacity_epoch, version
            self._expire()
        return decision

    def _require_no_wait(self, pod: PendingPod, nodes: Sequence[str], decision: Decision) -> None:
        """Raise a RefusedError if the pod fits once the containers of vanished pods have ended."""
        with self._state.pods.without_ending() as has_ending:
            later = self._scheduler.schedule(pod, nodes) if has_ending else decision
        if later.passing:
            reason = next(iter(decision.refusals.values())).reason
            raise RefusedError(
                "containers of pods that vanished, as after a deletion by force, may use the GPU "
                f"for their grace period; retrying: {reason}"
            )

    async def _unexplained(
        self, pod: PendingPod, nodes: Sequence[str], decision: Decision
    ) -> Decision:
        """Decide again on an unchanged pod although no event since could have freed capacity."""
        ledger = self._state.ledger
        epoch = ledger.free_capacity_epoch
        if self._waited_at != epoch:  # wait once, not for each of a thousand retried pods
            self._waited_at = epoch
            await self._wait_for(lambda: ledger.free_capacity_epoch != epoch, UNEXPLAINED_WAIT_S)
        if ledger.free_capacity_epoch != epoch:
            return self._scheduler.schedule(pod, nodes)
        if (pod.raw.get("status") or {}).get("nominatedNodeName"):
            return decision  # it waits for its victims, and an error would remove the nomination
        self._refused_at.pop(pod.uid, None)
        reason = next(iter(decision.refusals.values())).reason
        raise RefusedError(f"no feasible node in the extender's cache; retrying: {reason}")

    async def _unseen_ends(self, pod: PendingPod) -> list[str]:
        """Return the UIDs of the pod's victims that have ended, but not in the cache."""
        state = self._state
        victims = map(state.ledger.reservation, self._scheduler.nominations.victims(pod))
        running = [victim for victim in victims if victim and not state.pods.is_ending(victim.uid)]
        ended = await asyncio.gather(*map(self._has_ended, running))
        return [victim.uid for victim, is_over in zip(running, ended, strict=True) if is_over]

    async def _has_ended(self, victim: Reservation) -> bool:
        try:
            raw = await self._read_pod(victim.namespace, victim.name)
        except ClusterError:
            return False
        return raw is None or raw["metadata"]["uid"] != victim.uid or has_ended(raw)

    async def _list_pods(self) -> None:
        try:
            async with asyncio.timeout(RELIST_WAIT_S):
                await self._relist()
        except TimeoutError:
            raise RefusedError(
                "the extender's cache does not have the pod's last change yet; retrying"
            ) from None

    def _expire(self) -> None:
        pending = self._state.pods.pending
        if len(self._refused_at) > 2 * len(pending) + _REMEMBERED_MIN:
            self._refused_at = {u: at for u, at in self._refused_at.items() if u in pending}

    async def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = self._state.monotonic() + timeout_s
        while not condition():
            if self._state.monotonic() > deadline_s:
                return False
            await asyncio.sleep(_PAUSE_S)
        return True
