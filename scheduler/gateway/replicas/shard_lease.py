"""State of one shard's Lease at one replica; no I/O, times are those of a monotonic clock.

A replica owns the shard until its lease ends, counted from before the request that renewed it, less
a margin for the drift of clocks. Another one takes it after it has seen no change for the whole
lease. Each write names the version that it replaces, so a late one changes nothing.

It answers which replica should have the shard now: the preferred one, to which the owner passes it
on. `scheduler.cluster.owner_lease` knows no preference and no successor. It answers whether one
process has held its Lease without a break, which a replica need not know: it dispatches by the
present alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Times in seconds.

    Attributes:
        lease_s: time after which an unchanged lease is free.
        renew_s: pause between renewals.
        margin_s: time before the end of its lease at which the owner stops.
        retry_s: pause after a failed request.
        rank_s: pause for each replica that is preferred, before a free lease is taken.
        settle_s: time for which another replica is preferred before it gets the lease.
    """

    lease_s: float = 3.0
    renew_s: float = 1.0
    margin_s: float = 0.5
    retry_s: float = 0.2
    rank_s: float = 0.2
    settle_s: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A Lease as the API server stores it.

    Attributes:
        version: resource version of the Lease.
        holder: name of the replica that has the lease; empty without one.
        duration_s: `LeaseTimes.lease_s` of the holder.
        is_drained: true if nothing runs for a former holder, which has passed the lease on.
    """

    version: int
    holder: str
    duration_s: float
    is_drained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWrite:
    """A Lease to store.

    Attributes:
        version: resource version that the write replaces; None: the Lease must not exist.
        holder, duration_s, is_drained: new values of the attributes of `LeaseRecord`.
    """

    version: int | None
    holder: str
    duration_s: float
    is_drained: bool

    def record(self, version: int) -> LeaseRecord:
        """Return the record once it is stored."""
        return LeaseRecord(
            version=version,
            holder=self.holder,
            duration_s=self.duration_s,
            is_drained=self.is_drained,
        )


class LeaseRead(Enum):
    """A request for the current record."""

    READ = auto()


READ = LeaseRead.READ


class ShardLease:
    """One shard's Lease; one request is in flight at a time.

    Attributes:
        record: last record that was seen; None: the Lease does not exist.
        is_handing_over: true if another replica gets the lease once `drained` is reported.
        is_clean: true if no run of a former owner can be on the pods.
    """

    def __init__(self, member: str, times: LeaseTimes) -> None:
        self._member = member
        self._times = times
        self.record: LeaseRecord | None = None
        self._observed_s = -inf
        self._renewed_s = -inf
        self._valid_until_s = -inf
        self._retry_at_s = -inf
        self._must_read = True
        self._in_flight: tuple[LeaseWrite | LeaseRead, float, bool] | None = None
        self._drained: bool | None = None
        self._rival = ("", -inf)  # the preferred replica, and since when
        self.is_handing_over = False
        self.is_clean = False

    # -- questions -----------------------------------------------------------------------------

    def owns(self, now_s: float) -> bool:
        """Return true if this replica may dispatch."""
        return now_s < self._valid_until_s

    def is_free(self, now_s: float) -> bool:
        """Return true if nobody holds it."""
        return now_s >= self._free_at_s

    @property
    def _free_at_s(self) -> float:
        record = self.record
        if record is None:  # it may have been deleted under its owner
            return self._observed_s + self._times.lease_s
        return self._observed_s + (record.duration_s if record.holder else 0.0)

    # -- reports -------------------------------------------------------------------------------

    def observe(self, record: LeaseRecord | None, now_s: float) -> None:
        """Take in a record of the watch; older ones than the known are ignored."""
        previous = self.record
        if record is None or previous is None or record.version > previous.version:
            self._set(record, now_s)

    def read(self, record: LeaseRecord | None, now_s: float) -> None:
        """Take in the answer to `READ`; unlike the watch's it is never outdated."""
        self._in_flight = None
        self._must_read = False
        if record != self.record or self._observed_s == -inf:
            self._set(record, now_s)

    def _set(self, record: LeaseRecord | None, now_s: float) -> None:
        self.record = record
        self._observed_s = now_s
        if record is None or record.holder != self._member:
            self._valid_until_s = -inf
            self._drained, self.is_handing_over = None, False
            self._rival = "", -inf

    def written(self, version: int, now_s: float) -> None:
        """Take in that the write is stored."""
        assert self._in_flight is not None  # noqa: S101 - it answers a request
        write, sent_s, is_clean = self._in_flight
        assert isinstance(write, LeaseWrite)  # noqa: S101 - a read is reported by `read`
        self._in_flight = None
        self.observe(write.record(version), now_s)
        if self.record != write.record(version) or write.holder != self._member:
            return
        if self._drained is not None:  # reported meanwhile
            return
        if not self.owns(now_s):
            self.is_clean = is_clean
        self._renewed_s = sent_s
        self._valid_until_s = sent_s + self._times.lease_s - self._times.margin_s

    def refused(self) -> None:
        """Take in that the record is not the one that the write replaces."""
        self._in_flight = None
        self._must_read = True

    def failed(self, now_s: float) -> None:
        """Take in that there is no answer: the write may be stored, or be stored later."""
        self._in_flight = None
        self._retry_at_s = now_s + self._times.retry_s

    def drained(self, *, is_clean: bool) -> None:
        """Stop owning it, and pass it on; ``is_clean``: nothing runs on its pods."""
        self._drained = is_clean
        self._valid_until_s = -inf

    # -- decisions -----------------------------------------------------------------------------

    def step(self, now_s: float, preference: Sequence[str]) -> LeaseWrite | LeaseRead | None:
        """Return the next request, or None if there is nothing to send now.

        Args:
            now_s: time at which the request is sent.
            preference: live replicas, the preferred one first; without this one when it leaves.
        """
        if self._in_flight is not None or now_s < self._retry_at_s:
            return None
        request = READ if self._must_read else self._next_write(now_s, preference)
        if request is not None:
            record = self.record
            self._in_flight = request, now_s, record is not None and record.is_drained
        return request

    def _next_write(self, now_s: float, preference: Sequence[str]) -> LeaseWrite | None:
        record = self.record
        if record is None or record.holder != self._member:
            return self._takeover(now_s, preference)
        successor = next((member for member in preference if member != self._member), "")
        if self._drained is not None:
            return self._write(successor, is_drained=self._drained)
        if self._member not in preference and not self.owns(now_s):
            return self._write(successor, is_drained=record.is_drained)
        self._note_rival(now_s, preference)
        if now_s >= self._renewed_s + self._times.renew_s:
            return self._write(self._member, is_drained=False)
        return None

    def _takeover(self, now_s: float, preference: Sequence[str]) -> LeaseWrite | None:
        if self._member not in preference or not self.is_free(now_s):
            return None
        rank = preference.index(self._member)
        if now_s < self._free_at_s + self._times.rank_s * rank:
            return None
        return self._write(self._member, is_drained=False)

    def _note_rival(self, now_s: float, preference: Sequence[str]) -> None:
        """Begin to hand over once another replica has been preferred for a while."""
        preferred = preference[0] if preference else ""
        if preferred != self._rival[0]:
            self._rival = preferred, now_s
        is_leaving = self._member not in preference
        is_settled = now_s >= self._rival[1] + self._times.settle_s
        if is_leaving or (preferred != self._member and is_settled):
            self.is_handing_over = True

    def _write(self, holder: str, *, is_drained: bool) -> LeaseWrite:
        return LeaseWrite(
            version=None if self.record is None else self.record.version,
            holder=holder,
            duration_s=self._times.lease_s,
            is_drained=is_drained,
        )
