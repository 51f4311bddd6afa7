"""Keeps the Leases of this replica's shards at the API server, and takes those that are free."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

import structlog

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.leases import LeaseClient, StoredLease, stored_lease
from scheduler.gateway.replicas.ownership import Ownership
from scheduler.gateway.replicas.shard_lease import READ, LeaseRead, LeaseRecord, LeaseWrite
from scheduler.gateway.replicas.shards import SHARDS
from scheduler.model.names import ANNOTATION_DRAINED

log = structlog.get_logger(__name__)
_TICK_S = 0.1


class ShardHost(Protocol):
    """The part that serves shards."""

    def acquired(self, shard: int, *, hold: bool) -> None: ...
    def lost(self, shard: int) -> None: ...
    def hand_over(self, shard: int) -> Awaitable[bool]: ...


class LeaseKeeper:
    """Carries out the decisions of `Ownership`; it is the handler of the Leases' watch.

    Args:
        client: leases of this replica's namespace.
        ownership: decides which Leases are written, and when.
        host: serves the shards.
        on_owner: callback that gets a shard whose owner may have changed.
        group: group of these gateways; the Leases of each have names of their own.
        clock: monotonic seconds that go on while the machine is suspended, as leases do.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        client: LeaseClient,
        *,
        ownership: Ownership,
        host: ShardHost,
        on_owner: Callable[[int], None],
        clock: Callable[[], float],
        group: str,
    ) -> None:
        self._client = client
        self._prefix = f"esg-gateway-{group}-shard-" if group else "esg-gateway-shard-"
        self._clock_s = clock
        self._ownership = ownership
        self._host = host
        self._on_owner = on_owner
        self._owners = [""] * SHARDS
        self._served: set[int] = set()
        self._hand_overs: dict[int, asyncio.Task[None]] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._trouble = ""

    async def run(self) -> None:
        """Keep the leases until cancelled."""
        try:
            while True:
                self.step()
                try:
                    async with asyncio.timeout(_TICK_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
        finally:
            for task in (*self._requests, *self._hand_overs.values()):
                task.cancel()
            for shard in self._served:
                self._host.lost(shard)

    async def leave(self, timeout_s: float) -> None:
        """Pass all shards on, and return when they are."""
        self._ownership.is_leaving = True
        member = self._ownership.member
        deadline_s = self._clock_s() + timeout_s
        while self._clock_s() < deadline_s:
            records = [lease.record for lease in self._ownership.leases]
            if not self._served and all(r is None or r.holder != member for r in records):
                return
            self._wake.set()
            await asyncio.sleep(_TICK_S / 10)

    def step(self) -> None:
        """Send what is due, and report what has changed."""
        now_s = self._clock_s()
        for shard, request in self._ownership.steps(now_s):
            task = asyncio.create_task(self._send(shard, request))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
        self._report()

    # -- requests ------------------------------------------------------------------------------

    async def _send(self, shard: int, request: LeaseWrite | LeaseRead) -> None:
        lease, name = self._ownership.leases[shard], f"{self._prefix}{shard}"
        try:
            if request is READ:
                stored = await self._client.read(name)
                lease.read(None if stored is None else _record(stored), self._clock_s())
            else:
                assert isinstance(request, LeaseWrite)  # noqa: S101 - there are two kinds
                stored = await self._client.write(
                    name,
                    version=None if request.version is None else str(request.version),
                    holder=request.holder,
                    duration_s=request.duration_s,
                    annotations={ANNOTATION_DRAINED: str(request.is_drained).lower()},
                )
                if stored is None:
                    lease.refused()
                else:
                    lease.written(int(stored.version), self._clock_s())
        except ClusterError as error:
            lease.failed(self._clock_s())
            self._note(str(error))
        else:
            self._note("")
        self._report()
        self._wake.set()

    def _note(self, trouble: str) -> None:
        if trouble and not self._trouble:
            log.warning("leases cannot be kept", problem=trouble)
        self._trouble = trouble

    # -- reports -------------------------------------------------------------------------------

    def _report(self) -> None:
        """Report the shards that were gained or lost, and new owners."""
        now_s = self._clock_s()
        for shard, lease in enumerate(self._ownership.leases):
            is_owned = lease.owns(now_s)
            if is_owned and shard not in self._served and shard not in self._hand_overs:
                self._served.add(shard)
                self._host.acquired(shard, hold=not lease.is_clean)
            elif not is_owned and shard in self._served:
                self._served.discard(shard)
                if (task := self._hand_overs.pop(shard, None)) is not None:
                    task.cancel()
                self._host.lost(shard)
            elif lease.is_handing_over and shard in self._served and shard not in self._hand_overs:
                self._hand_overs[shard] = asyncio.create_task(self._hand_over(shard))
            owner = self._ownership.owner(shard, now_s)
            if owner != self._owners[shard]:
                self._owners[shard] = owner
                self._on_owner(shard)

    async def _hand_over(self, shard: int) -> None:
        is_clean = await self._host.hand_over(shard)
        self._served.discard(shard)
        del self._hand_overs[shard]
        self._ownership.leases[shard].drained(is_clean=is_clean)
        self._wake.set()

    # -- handler of the watch ------------------------------------------------------------------

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Take a list; a Lease that it lacks may have been created since."""
        for item in items:
            self.upsert(item)

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Take a Lease."""
        stored = stored_lease(dict(item))
        shard = self._shard(stored.name)
        if shard is not None:
            self._ownership.observe(shard, _record(stored), self._clock_s())
            self._wake.set()

    def delete(self, item: Mapping[str, Any]) -> None:
        """Handle the deletion of a Lease."""
        shard = self._shard(item["metadata"]["name"])
        if shard is not None:
            self._ownership.observe(shard, None, self._clock_s())
            self._wake.set()

    def _shard(self, name: str) -> int | None:
        number = name.removeprefix(self._prefix)
        is_own = name.startswith(self._prefix) and number.isdecimal() and int(number) < SHARDS
        return int(number) if is_own else None


def _record(stored: StoredLease) -> LeaseRecord:
    return LeaseRecord(
        version=int(stored.version),
        holder=stored.holder,
        duration_s=stored.duration_s,
        is_drained=stored.annotations.get(ANNOTATION_DRAINED) == "true",
    )
