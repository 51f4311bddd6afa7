"""Bindings whose outcome is unknown: made void, or accounted for.

A Binding names its pod's version, and the API server accepts it for this version alone. So a write
to the pod's status decides: it succeeds, and no Binding of the earlier version can arrive any more,
or it conflicts, and a read shows if the pod is bound.
"""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from math import inf
from typing import Literal, TypeVar

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.link import ClusterLink
from scheduler.model.pod import has_ended
from scheduler.planning.pods import PendingPod, describe, version_of
from scheduler.planning.state import State

_CONCURRENT_REQUESTS = 16  # most of the connections remain for other calls
_LIST_WITHIN_S = 10.0  # the reflector's pause after an outage may be longer
_WATCH_WITHIN_S = 10.0
_PAUSE_S = 0.01
Result = TypeVar("Result")


class BindingVoider:
    """Makes Bindings void, and brings ledger and cache up to date with what it finds."""

    def __init__(self, state: State, link: ClusterLink) -> None:
        self._state = state
        self._link = link

    async def void(
        self, namespace: str, name: str, uid: str, version: int, *, timeout_s: float | None = None
    ) -> Literal["bound", "void", "gone"]:
        """Make the Bindings of this version of a pod void, unless one has bound it.

        What is assumed for the pod is released, or replaced by what the bound pod shows. If the pod
        is gone, one may have bound it before.

        Raises:
            ClusterError: such a Binding may still arrive.
        """
        state = self._state
        assumed = state.ledger.reservation(uid)
        raw = await self._link.void_bindings(namespace, name, str(version), timeout_s=timeout_s)
        is_assumed = assumed is not None and not assumed.confirmed
        if raw is None or raw["metadata"]["uid"] != uid:
            if assumed is not None and is_assumed:
                state.pods.vanish_unconfirmed(assumed)
            return "gone"
        if (raw.get("spec") or {}).get("nodeName"):
            state.pods.adopt(raw, assumed)
            return "bound"
        state.pods.refresh(raw)
        if assumed is not None and is_assumed:
            state.ledger.withdraw(assumed)
        return "void"

    async def take_over(self) -> float:
        """Account for all that other processes have bound, and make void what they may still bind.

        Pods that vanished count, too: the watch has shown those that were bound after its first
        list. So it goes on, and the pods are listed beside it. Only if it does not catch up, the
        reflector lists them, and what vanished since its last event is not known.

        Returns:
            the time from which on the ledger has all containers that may run, on the monotonic
            clock.

        Raises:
            ClusterError: an earlier Binding may still arrive.
        """
        state, lease = self._state, self._link.owner_lease
        grace_s = state.settings.deletion_grace_max_s
        if not grace_s or lease is None or lease.is_new:
            await _in_time(self._link.relist_pods())
            await self._void_all(list(state.pods.pending.values()))
            return -inf
        version, unbound = await self._list_unbound()
        gone = await self._void_all(unbound)
        if not await self._has_watched(version, gone):
            await _in_time(self._link.relist_pods())
        return state.pods.listed_s + grace_s

    async def _list_unbound(self) -> tuple[int, list[PendingPod]]:
        """List the pods; return the list's version, and those that a Binding may still bind."""
        pods, version = await _in_time(self._link.list_pods())
        unbound = [
            describe(raw)
            for raw in pods
            if not (raw.get("spec") or {}).get("nodeName") and not has_ended(raw)
        ]
        return version, [pod for pod in unbound if pod.function_pod is not None or pod.problem]

    async def _void_all(self, pods: Sequence[PendingPod]) -> list[str]:
        """Make the Bindings of these pods void; return the UIDs of those that are gone."""
        slots = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        outcomes = await asyncio.gather(
            *(self._void_pending(pod, slots) for pod in pods), return_exceptions=True
        )
        gone = []
        for pod, outcome in zip(pods, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome == "gone":
                gone.append(pod.uid)
        return gone

    async def _void_pending(
        self, pod: PendingPod, slots: asyncio.Semaphore
    ) -> Literal["bound", "void", "gone"]:
        async with slots:
            return await self.void(pod.namespace, pod.name, pod.uid, version_of(pod.raw))

    async def _has_watched(self, version: int, gone: Collection[str]) -> bool:
        """Wait until the watch has shown this version, and the end of the pods that are gone.

        The write that makes a Binding void is an event of a newer version. Without an unbound pod
        none may come, and none is needed: a pod that is created later is one.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_WATCH_WITHIN_S):
                while (  # noqa: ASYNC110 - an event for each change of the cache would cost more
                    self._state.pods.version < version or any(map(self._is_known, gone))
                ):
                    await asyncio.sleep(_PAUSE_S)
                return True
        return False

    def _is_known(self, uid: str) -> bool:
        """Return true if the cache has the pod as one that exists."""
        state = self._state
        is_reserved = state.ledger.reservation(uid) is not None and not state.pods.is_ending(uid)
        return is_reserved or uid in state.pods.pending


async def _in_time(listing: Awaitable[Result]) -> Result:
    """Wait for a list; raises a ClusterError if it takes too long."""
    try:
        async with asyncio.timeout(_LIST_WITHIN_S):
            return await listing
    except TimeoutError:
        raise ClusterError("the pods cannot be listed") from None
