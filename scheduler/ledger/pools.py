"""All pools: holders of slices, and the members that run in them (ADRs 44 and 59)."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from scheduler.ledger.reservation import Reservation
from scheduler.model.names import POOL_HOLDER, POOL_MEMBER
from scheduler.model.pools import PoolName
from scheduler.placement.members import GpuSlice


class Pools:
    """Reservations of holders and members, by pool and by the pod's UID."""

    def __init__(self) -> None:
        self._by_pool: defaultdict[PoolName, dict[str, Reservation]] = defaultdict(dict)

    def add(self, reservation: Reservation) -> None:
        """Add a reservation; one of no pool changes nothing."""
        if reservation.pool:
            self._by_pool[reservation.pool_name][reservation.uid] = reservation

    def remove(self, reservation: Reservation) -> None:
        """Remove a reservation."""
        if reservation.pool:
            pods = self._by_pool[reservation.pool_name]
            del pods[reservation.uid]
            if not pods:
                del self._by_pool[reservation.pool_name]

    def slices(self, pool: PoolName | None = None, function: str | None = None) -> list[GpuSlice]:
        """Return the slices of a pool, and how many members of a function each has.

        Args:
            pool: default: all pools.
            function: default: members of all functions.
        """
        return [
            slice_
            for name in list(self._by_pool if pool is None else [pool])
            for slice_ in self._slices(name, function)
        ]

    def _slices(self, pool: PoolName, function: str | None) -> Iterator[GpuSlice]:
        pods = self._by_pool.get(pool, {}).values()
        members = Counter(
            (pod.node, pod.gpu_uuid)
            for pod in pods
            if pod.pool == POOL_MEMBER and function in (None, pod.function)
        )
        for pod in pods:
            if pod.pool == POOL_HOLDER and pod.gpu_uuid is not None:
                yield GpuSlice(
                    pod.uid,
                    pool,
                    pod.node,
                    pod.gpu_uuid,
                    pod.gpu_percent,
                    pod.cpu_milli,
                    pod.confirmed and not pod.is_ending,
                    members[pod.node, pod.gpu_uuid],
                )

    def problem(self, reservation: Reservation) -> str:
        """Return why a reservation must not be assumed on its GPU; empty if it may be.

        A pool has one slice of a GPU at most, also while it ends: its dispatcher knows it by the
        GPU. A member needs a slice that is there and stays, as far as the cluster has shown.
        """
        if not reservation.pool:
            return ""
        slices = [
            slice_
            for slice_ in self.slices(reservation.pool_name)
            if (slice_.node, slice_.gpu_uuid) == (reservation.node, reservation.gpu_uuid)
        ]
        pool = reservation.pool_name
        if reservation.pool == POOL_HOLDER:
            return f"{pool} has a slice of it already" if slices else ""
        problems = [
            slice_.problem(reservation.slice_percent, reservation.slice_cpu_milli)
            for slice_ in slices
        ]
        if not problems:
            return f"{pool} has no slice of it"
        return "" if "" in problems else problems[0]
