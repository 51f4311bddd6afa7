"""Ownership of all shards, as one replica sees it; no I/O, times are those of a monotonic clock."""

from collections.abc import Iterable, Iterator

from scheduler.gateway.replicas.shard_lease import (
    LeaseRead,
    LeaseRecord,
    LeaseTimes,
    LeaseWrite,
    ShardLease,
)
from scheduler.gateway.replicas.shards import SHARDS, preference, shard_of

_SUSPICION_S = 30.0


class Ownership:
    """All leases, and the replicas that may hold them.

    Attributes:
        member: name of this replica.
        leases: lease of each shard.
        is_leaving: true if this replica passes all of its shards on.
    """

    def __init__(self, member: str, times: LeaseTimes) -> None:
        self.member = member
        self.leases = [ShardLease(member, times) for _ in range(SHARDS)]
        self._members: frozenset[str] = frozenset()
        self._suspected_until_s: dict[str, float] = {}  # replicas that may have ended
        self.is_leaving = False

    def owns(self, namespace: str, now_s: float) -> bool:
        """Return true if this replica may dispatch to the pods of a namespace."""
        return self.leases[shard_of(namespace)].owns(now_s)

    def owner(self, shard: int, now_s: float) -> str:
        """Return the replica that calls of a shard go to; empty: none is known."""
        lease = self.leases[shard]
        if lease.record is None or lease.is_free(now_s):
            return ""
        if lease.record.holder == self.member and not lease.owns(now_s):
            return ""
        return lease.record.holder

    def set_members(self, members: Iterable[str]) -> None:
        """Replace the replicas that are ready."""
        self._members = frozenset(members)

    def observe(self, shard: int, record: LeaseRecord | None, now_s: float) -> None:
        """Take in a record of the watch."""
        before = self.leases[shard].record
        self.leases[shard].observe(record, now_s)
        if record is None:
            return
        self._suspected_until_s.pop(record.holder, None)
        if record.holder == self.member and before is not None and before.holder != self.member:
            # Who passes its shards on may be leaving; it gets none back unless it renews others.
            self._suspected_until_s[before.holder] = now_s + _SUSPICION_S

    def steps(self, now_s: float) -> Iterator[tuple[int, LeaseWrite | LeaseRead]]:
        """Yield the requests to send now, by shard."""
        for lease in self.leases:
            holder = "" if lease.record is None else lease.record.holder
            if holder not in {"", self.member} and lease.is_free(now_s):
                self._suspected_until_s[holder] = now_s + _SUSPICION_S
        suspects = {name for name, until_s in self._suspected_until_s.items() if now_s < until_s}
        own = frozenset({self.member})
        live = self._members - suspects
        candidates = live - own if self.is_leaving else live | own
        for shard, lease in enumerate(self.leases):
            request = lease.step(now_s, preference(shard, candidates))
            if request is not None:
                yield shard, request
