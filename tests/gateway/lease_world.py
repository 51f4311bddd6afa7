"""Replicas that compete for leases: clocks drift, the network loses and delays, and they pause."""

import heapq
import itertools
from random import Random

from scheduler.gateway.replicas.ownership import Ownership
from scheduler.gateway.replicas.shard_lease import READ, LeaseTimes

TICK_S = 0.2
PAUSE_S = 8.0  # of a process, at most
LATE_S = 6.0  # of a request, at most


class LeaseServer:
    """Leases with versions, as the API server keeps them."""

    def __init__(self):
        self.records = {}
        self.version = 0

    def write(self, shard, write):
        """Store a lease; return its version, or None if it replaces another one."""
        known = self.records.get(shard)
        if write.version != (None if known is None else known.version):
            return None
        self.version += 1
        self.records[shard] = write.record(self.version)
        return self.version


class Replica:
    """One process: its clock, its state, and the time until which it is paused."""

    def __init__(self, name, rate, now_s):
        self.name = name
        self.rate = rate
        self.offset_s = -rate * now_s
        self.ownership = Ownership(name, LeaseTimes())
        self.is_dead = False
        self.paused_until_s = 0.0

    def clock_s(self, now_s):
        return self.rate * now_s + self.offset_s

    def owned(self, now_s):
        """The shards that it would dispatch now; a paused or dead process dispatches none."""
        if self.is_dead or self.paused_until_s > now_s:
            return set()
        clock_s = self.clock_s(now_s)
        return {s for s, lease in enumerate(self.ownership.leases) if lease.owns(clock_s)}


class World:
    """Virtual time; every moment at which something happens is checked.

    Attributes:
        faulty: requests and events are lost and late, and processes pause.
        now_s: the time of no replica's clock.
        replicas: those that live.
    """

    def __init__(self, seed, names, drift=0.0, *, faulty=False):
        self.random = Random(seed)
        self.faulty = faulty
        self.drift = drift
        self.now_s = 0.0
        self.server = LeaseServer()
        self.replicas = {}
        self._queue = []
        self._numbers = itertools.count()
        for name in names:
            self.start(name)

    def start(self, name):
        rate = 1 + self.random.uniform(-self.drift, self.drift)
        replica = Replica(name, rate, self.now_s)
        self.replicas[name] = replica
        self._members_changed()
        self.after(self.random.uniform(0, TICK_S), self._tick, replica)

    def kill(self, name):
        self.replicas.pop(name).is_dead = True

    def leave(self, name):
        self.replicas[name].ownership.is_leaving = True

    def _members_changed(self):
        for replica in self.replicas.values():
            replica.ownership.set_members(self.replicas)

    def after(self, delay_s, call, *arguments, **options):
        entry = self.now_s + delay_s, next(self._numbers), call, arguments, options
        heapq.heappush(self._queue, entry)

    def run(self, duration_s):
        """Run, and check after each event that no shard has two owners."""
        end_s = self.now_s + duration_s
        while self._queue and self._queue[0][0] <= end_s:
            self.now_s, _, call, arguments, options = heapq.heappop(self._queue)
            call(*arguments, **options)
            self.check()
        self.now_s = end_s
        self.check()

    def check(self):
        owners = self.owners()
        assert all(len(names) <= 1 for names in owners.values()), (self.now_s, owners)

    def owners(self):
        """Map each shard to the replicas that would dispatch it."""
        owners = {}
        for replica in self.replicas.values():
            for shard in replica.owned(self.now_s):
                owners.setdefault(shard, []).append(replica.name)
        return owners

    # -- one replica -----------------------------------------------------------------------------

    def _tick(self, replica):
        if replica.is_dead:
            return
        self.after(TICK_S / replica.rate, self._at, replica, self._tick, (replica,))
        if self.faulty and self.random.random() < 0.01:
            replica.paused_until_s = self.now_s + self.random.uniform(0, PAUSE_S)
            return
        clock_s = replica.clock_s(self.now_s)
        for shard, request in replica.ownership.steps(clock_s):
            # A process may pause between its decision and the request.
            self.after(self._delay_s(), self._receive, replica, shard, request)
        for lease in replica.ownership.leases:
            if lease.is_handing_over:
                self.after(self._delay_s(), self._at, replica, lease.drained, (), is_clean=True)

    def _at(self, replica, call, arguments, **options):
        """Call a replica as soon as it is not paused."""
        if replica.is_dead:
            return
        if replica.paused_until_s > self.now_s:
            wait_s = replica.paused_until_s - self.now_s
            self.after(wait_s, self._at, replica, call, arguments, **options)
            return
        call(*arguments, **options)

    # -- the network -----------------------------------------------------------------------------

    def _delay_s(self):
        if self.faulty and self.random.random() < 0.1:
            return self.random.uniform(0, LATE_S)
        return self.random.uniform(0.001, 0.02)

    def _is_lost(self):
        return self.faulty and self.random.random() < 0.1

    def _receive(self, replica, shard, request):
        """Store or read at the server; the answer, or the client's time-out, comes later."""
        lease = replica.ownership.leases[shard]
        is_open = {True}

        def report(result, *arguments):
            if is_open:  # the answer and the time-out: the first one counts
                is_open.clear()
                result(*arguments, replica.clock_s(self.now_s))

        self.after(1.0, self._at, replica, report, (lease.failed,))
        if self._is_lost():
            return
        if request is READ:
            answer = lease.read, self.server.records.get(shard)
        elif (version := self.server.write(shard, request)) is None:
            answer = (lambda _: lease.refused(),)
        else:
            answer = lease.written, version
            self._report_to_watches(shard)
        if not self._is_lost():
            self.after(self._delay_s(), self._at, replica, report, answer)

    def _report_to_watches(self, shard):
        record = self.server.records[shard]
        for replica in self.replicas.values():
            if not self._is_lost():
                arguments = replica, shard, record
                self.after(self._delay_s(), self._at, replica, self._observe, arguments)

    def _observe(self, replica, shard, record):
        replica.ownership.observe(shard, record, replica.clock_s(self.now_s))
