"""Bindings whose outcome is unknown: made void, or accounted for.

A Binding names its pod's version, and the API server accepts it for this version alone. So a write
to the pod's status decides: it succeeds, and no Binding of the earlier version can arrive any more,
or it conflicts, and a read shows if the pod is bound.
"""

import asyncio
from typing import Literal

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.link import ClusterLink
from scheduler.planning.pods import PendingPod, version_of
from scheduler.planning.state import State

_CONCURRENT_REQUESTS = 16  # most of the connections remain for other calls
_RELIST_WITHIN_S = 10.0  # the reflector's pause after an outage may be longer


class BindingVoider:
    """Makes Bindings void, and brings ledger and cache up to date with what it finds."""

    def __init__(self, state: State, link: ClusterLink) -> None:
        self._state = state
        self._link = link

    async def void(
        self, namespace: str, name: str, uid: str, version: int, *, timeout_s: float | None = None
    ) -> Literal["bound", "void"]:
        """Make the Bindings of this version of a pod void, unless one has bound it.

        What is assumed for the pod is released, or replaced by what the bound pod shows.

        Raises:
            ClusterError: such a Binding may still arrive.
        """
        state = self._state
        assumed = state.ledger.reservation(uid)
        raw = await self._link.void_bindings(namespace, name, str(version), timeout_s=timeout_s)
        if raw is not None and raw["metadata"]["uid"] == uid:
            if (raw.get("spec") or {}).get("nodeName"):
                state.pods.adopt(raw, assumed)
                return "bound"
            state.pods.refresh(raw)
        if assumed is not None and not assumed.confirmed:
            state.ledger.withdraw(assumed)
        return "void"

    async def take_over(self) -> None:
        """Account for all that other processes have bound, and make void what they may still bind.

        Raises:
            ClusterError: an earlier Binding may still arrive.
        """
        try:
            async with asyncio.timeout(_RELIST_WITHIN_S):
                await self._link.relist_pods()
        except TimeoutError:
            raise ClusterError("the pods cannot be listed") from None
        slots = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        pending = list(self._state.pods.pending.values())
        outcomes = await asyncio.gather(
            *(self._void_pending(pod, slots) for pod in pending), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _void_pending(self, pod: PendingPod, slots: asyncio.Semaphore) -> None:
        async with slots:
            await self.void(pod.namespace, pod.name, pod.uid, version_of(pod.raw))
