"""A Lease that says which process may do what only one may do at a time.

Its holder trusts it for less time than others wait, each by its own clock: the only assumption is
that no clock runs `DURATION_S` / `VALID_S` times as fast as another one. Each write names the
version that it replaces. So a process knows if it alone has held the Lease since an earlier moment,
whatever the times between its writes were.

That is its question: may a decision from then still be written? The gateway's
`scheduler.gateway.replicas.shard_lease` does not ask it. Its question is which of several replicas
should have a shard now, and how one passes it on to another without a gap.
"""

import asyncio
import socket
from collections.abc import Callable
from math import inf
from time import CLOCK_BOOTTIME, clock_gettime
from uuid import uuid4

from scheduler.cluster.leases import LeaseClient

DURATION_S = 15.0  # others wait so long for a change
VALID_S = 10.0  # from before the request that has renewed it
LEASE_NAME = "esg-scheduler-gpus"
STATUS_LEASE_NAME = "esg-scheduler-status"
LEASE_LABELS = {"app.kubernetes.io/name": "esg-scheduler"}


def boottime_s() -> float:
    """Return a monotonic time that goes on while the machine is suspended."""
    return clock_gettime(CLOCK_BOOTTIME)


class OwnerLease:
    """One process's view of the Lease.

    Attributes:
        chain: number of the current period in which the answers showed no other holder. While it is
            the same after two successful calls of `acquire`, nobody else has held the Lease
            between.
        is_new: true if there was no Lease before this process's own, when this period began.
        other_holder: identity of another process that holds it, as last read; empty: none.

    Args:
        leases: client of the Lease's namespace.
        clock: monotonic clock, in seconds.
        name: name of the Lease.
    """

    def __init__(
        self,
        leases: LeaseClient,
        *,
        clock: Callable[[], float] = boottime_s,
        name: str = LEASE_NAME,
    ) -> None:
        self.chain = 0
        self.is_new = False
        self.other_holder = ""
        self._leases = leases
        self._clock = clock
        self._name = name
        self._holder = f"{socket.gethostname()}_{uuid4().hex[:8]}"
        self._lock = asyncio.Lock()
        self._version: str | None = None  # as last read or written; None: there is no Lease
        self._is_own_write = False  # the version is that of this process's last write
        self._observed_s = -inf  # when this version was read first
        self._duration_s = 0.0
        self._valid_until_s = -inf

    def is_valid(self) -> bool:
        """Return true if no other process can hold it now."""
        return self._clock() < self._valid_until_s

    async def acquire(self) -> bool:
        """Acquire or renew it; return false if another process holds it.

        Raises:
            ClusterError: there is no answer; what was valid is valid until its end.
        """
        async with self._lock:
            if self._is_own_write and await self._write(self._holder):
                return True
            await self._read()
            return self._is_free() and await self._write(self._holder)

    async def observe(self) -> None:
        """Read it, so that the wait for its holder counts from now.

        Raises:
            ClusterError: there is no answer.
        """
        async with self._lock:
            await self._read()

    async def release(self) -> None:
        """Let others acquire it at once.

        If nobody does, the next `acquire` continues the chain without reading it.

        Raises:
            ClusterError: there is no answer.
        """
        async with self._lock:
            self._valid_until_s = -inf
            if self._is_own_write:
                await self._write("")

    async def _read(self) -> None:
        stored = await self._leases.read(self._name)
        version = None if stored is None else stored.version
        if version != self._version or stored is None:
            self._version, self._observed_s = version, self._clock()
            self._is_own_write = False
            # Only writes over a version that was read succeed. So what shows this process as its
            # holder was written over its own last version.
            if stored is None or stored.holder != self._holder:
                self.chain += 1
                self.is_new = stored is None
                self._valid_until_s = -inf
        is_foreign = stored is not None and stored.holder != self._holder
        self.other_holder = stored.holder if stored is not None and is_foreign else ""
        self._duration_s = 0.0 if stored is None else stored.duration_s

    def _is_free(self) -> bool:
        return not self.other_holder or self._clock() >= self._observed_s + self._duration_s

    async def _write(self, holder: str) -> bool:
        sent_s = self._clock()
        self._is_own_write = False  # without an answer, it must be read
        stored = await self._leases.write(
            self._name,
            version=self._version,
            holder=holder,
            duration_s=DURATION_S,
            annotations={},
        )
        if stored is None:
            return False
        self._version, self._is_own_write, self.other_holder = stored.version, True, ""
        if holder:
            self._valid_until_s = sent_s + VALID_S
        return True
