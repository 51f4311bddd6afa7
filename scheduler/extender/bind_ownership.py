"""Ownership of all GPUs: one process at a time binds pods.

The API server fences a pod, which is bound once, but no GPU: that takes a ledger that knows all
Bindings, and so a single process that sends them. It holds a Lease. A lease alone does not suffice,
because a process may pause between its look at the clock and its request, and an API server may
pause with the request. So a process that becomes the owner makes all earlier Bindings void
(ADR 34).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf

import structlog

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.owner_lease import OwnerLease
from scheduler.server.errors import RefusedError

log = structlog.get_logger(__name__)
RENEW_S = 3.0
# A process without calls lets another one have the Lease. If none takes it, the next call costs one
# write.
IDLE_S = 10.0
RETRY_S = 1.0  # while calls wait for the Lease


class BindOwnership:
    """Acquires the Lease at the first call that needs it, and keeps it while there are calls.

    Args:
        lease: None: no other process binds pods.
        take_over: makes the Bindings of other processes void, and accounts for what they bound;
            returns from when on, on the monotonic clock, that includes all containers that run.
        monotonic: seconds.
    """

    def __init__(
        self,
        lease: OwnerLease | None,
        take_over: Callable[[], Awaitable[float]],
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._lease = lease
        self._take_over = take_over
        self._monotonic = monotonic
        self._complete_chain = -1  # in which the ledger has all that was bound before
        self._complete_s = -inf  # and from when on all that ran before
        self._called_s = -IDLE_S
        self._trouble = ""
        self._wanted = asyncio.Event()
        self._attempted = asyncio.Event()

    @property
    def period(self) -> int | None:
        """The period in which this process alone binds pods; None: it is not the owner now.

        What was decided in a period counts only in the same one.
        """
        lease = self._lease
        if lease is None:
            return 0
        is_complete = self._has_taken_over(lease) and self._monotonic() >= self._complete_s
        return lease.chain if is_complete else None

    def _has_taken_over(self, lease: OwnerLease) -> bool:
        return lease.is_valid() and lease.chain == self._complete_chain

    async def ensure(self, timeout_s: float) -> None:
        """Become the owner, if this process is not.

        Raises:
            RefusedError: another process is, or it takes longer.
        """
        self._called_s = self._monotonic()
        if self.period is not None:
            return
        self._attempted.clear()
        self._wanted.set()
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._attempted.wait()
        except TimeoutError:
            self._trouble = self._trouble or "the API server is slow; retrying"
        self.require()

    def require(self) -> None:
        """Raise a RefusedError if this process is not the owner."""
        if self.period is None:
            reason = self._trouble or "its Lease has ended; retrying"
            if self._lease is not None and self._has_taken_over(self._lease):
                wait_s = self._complete_s - self._monotonic()
                reason = (
                    "containers of pods that vanished before it had listed the pods may run for "
                    f"{wait_s:.0f} s (ESG_DELETION_GRACE_MAX_S); retrying"
                )
            raise RefusedError(f"this process of the extender may not bind pods now: {reason}")

    async def run(self) -> None:
        """Acquire and keep the Lease until cancelled."""
        if self._lease is None:
            await asyncio.Event().wait()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._acquire_when_wanted(self._lease))
            group.create_task(self._keep(self._lease))

    async def release(self) -> None:
        """Let another process have the Lease at once."""
        if self._lease is not None:
            try:
                await self._lease.release()
            except ClusterError as error:
                log.warning("the owner's Lease is not released", error=str(error))

    async def _acquire_when_wanted(self, lease: OwnerLease) -> None:
        while True:
            is_waiting = self.period is None and not self._is_idle()
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if is_waiting else None):
                    await self._wanted.wait()
            self._wanted.clear()
            if self.period is None:
                await self._acquire(lease)
            self._attempted.set()

    async def _acquire(self, lease: OwnerLease) -> None:
        if self._has_taken_over(lease):
            return  # time alone is missing
        try:
            if not await lease.acquire():
                self._trouble = f"process {lease.other_holder} does; retrying"
                return
            chain = lease.chain
            if chain != self._complete_chain:
                self._trouble = "it is reading what others have bound; retrying"
                self._complete_s = await self._take_over()
                self._complete_chain = chain
                self._trouble = ""
                wait_s = max(0.0, self._complete_s - self._monotonic())
                log.info("this process binds pods", after_s=round(wait_s, 3))
        except ClusterError as error:
            self._trouble = f"{error}; retrying"

    async def _keep(self, lease: OwnerLease) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                if not lease.is_valid():
                    await lease.observe()  # the wait for its holder counts from then
                elif self._is_idle():
                    await lease.release()
                else:
                    await lease.acquire()
            except ClusterError as error:
                log.warning("the owner's Lease is not kept", error=str(error))

    def _is_idle(self) -> bool:
        return self._monotonic() - self._called_s >= IDLE_S
