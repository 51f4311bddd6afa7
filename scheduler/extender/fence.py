"""Fence on GPUs: no two processes promise the same share, whatever their caches show.

A Binding fences its pod and no GPU: another replica, or an earlier life of this one, may bind
another pod to the same GPU. So before each Binding its share is recorded in the node's record,
which is written over the version that was read. A share stays in the record until its pod has
ended, or no Binding with it can arrive any more: no clock decides that (ADR 28).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

import structlog

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.node_records import NodeRecord, NodeRecords, RecordedShare
from scheduler.extender.pods import version_of
from scheduler.extender.state import State
from scheduler.ledger.reservation import Reservation
from scheduler.server.errors import RefusedError

log = structlog.get_logger(__name__)
# A recorded share of an unknown pod is never a victim: kube-scheduler may not know the pod either.
_PRIORITY_MAX = 2**31 - 1


class TakenError(RefusedError):
    """Another process has recorded the share; another GPU of the node may have room."""


@dataclass(slots=True)
class _Node:
    """State of a node's record, as this process knows it.

    Attributes:
        lock: held while the record is read or written.
        waiting: reservations that the next write records, by pod UID.
        version: of the record; None: it must be read first, or there is none.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: dict[str, Reservation] = field(default_factory=dict)
    version: str | None = None


class Fence:
    """Records reservations of this process on their nodes, and takes over those of others."""

    def __init__(self, state: State, records: NodeRecords) -> None:
        self._state = state
        self._records = records
        self._writer = uuid4().hex[:16]
        self._nodes: defaultdict[str, _Node] = defaultdict(_Node)

    async def record(self, reservation: Reservation, remaining_s: Callable[[], float]) -> None:
        """Record an assumed reservation, before its Binding is sent.

        Reservations that wait for the same node are recorded by one write. ``remaining_s`` returns
        the time that is left, and raises a RefusedError where none is.

        Raises:
            TakenError: another process has recorded the share first.
            RefusedError: it is not recorded. In both cases the reservation is released.
        """
        node = self._nodes[reservation.node]
        node.waiting[reservation.uid] = reservation
        try:
            async with node.lock:
                while node.waiting.get(reservation.uid) is reservation:
                    remaining_s()
                    await self._write(reservation.node, node)
        except BaseException:
            node.waiting.pop(reservation.uid, None)
            self._state.ledger.withdraw(reservation)
            raise
        if self._state.ledger.reservation(reservation.uid) is not reservation:
            raise TakenError(
                f"GPU {reservation.gpu_uuid} of node {reservation.node}: another replica of the "
                "extender has recorded a pod there"
            )

    async def _write(self, name: str, node: _Node) -> None:
        """Write the record over the version that is known, or read what another has written."""
        covered = dict(node.waiting)
        version, node.version = node.version, None  # without an answer, it must be read
        try:
            if version is None and (record := await self._records.read(name)) is not None:
                self._merge(name, record)
                self._withdraw_excess(name, node)
                node.version = record.version
                return
            node.version = await self._records.write(
                name, self._shares(name), version=version, writer=self._writer
            )
        except ClusterError as error:
            raise RefusedError(f"node {name}: its record of shares: {error}") from error
        if node.version is not None:
            for uid in covered:
                node.waiting.pop(uid, None)

    def _shares(self, name: str) -> list[RecordedShare]:
        return [
            RecordedShare(
                uid=held.uid,
                namespace=held.namespace,
                name=held.name,
                gpu=held.gpu_uuid,
                percent=held.gpu_percent,
                memory_mib=held.memory_mib,
                version=held.pod_version,
                writer="" if held.confirmed else held.writer or self._writer,
            )
            for held in self._state.ledger.on_node(name)
            if held.gpu_uuid is not None
        ]

    def _merge(self, name: str, record: NodeRecord) -> None:
        """Reserve the shares of a record that this process does not know, and that may be used.

        Raises:
            RefusedError: a pod may be bound to this node or to another one.
        """
        ledger = self._state.ledger
        for share in record.shares:
            known = ledger.reservation(share.uid)
            if known is None:
                if not self._is_void(share):
                    ledger.adopt(self._reservation(name, share))
            elif (
                known.confirmed or share.writer == self._writer or known.pod_version > share.version
            ):
                continue  # what is known is newer
            elif known.node == name or known.pod_version < share.version:
                ledger.adopt(self._reservation(name, share))
            else:
                raise RefusedError(
                    f"pod {share.namespace}/{share.name} may be bound to node {name} or to node "
                    f"{known.node}; retrying"
                )

    def _is_void(self, share: RecordedShare) -> bool:
        """Tell if no pod has this share any more, nor can a Binding give it to one.

        The pod is not in the ledger. So it is not bound, as far as the cache is current.
        """
        if share.writer == self._writer:
            return True  # this process has released it, and knows why
        pods = self._state.pods
        pending = pods.pending.get(share.uid)
        if pending is not None:
            return version_of(pending.raw) > share.version
        return pods.version >= share.version > 0  # it was seen, and it has ended or is deleted

    def _reservation(self, name: str, share: RecordedShare) -> Reservation:
        """Assume what another process has recorded, until the watch or a read shows the pod."""
        log.info("share of another process", node=name, pod=f"{share.namespace}/{share.name}")
        return Reservation(
            uid=share.uid,
            namespace=share.namespace,
            name=share.name,
            node=name,
            cpu_milli=0,  # the kubelet refuses what exceeds the node's
            gpu_uuid=share.gpu,
            gpu_percent=share.percent,
            memory_mib=share.memory_mib,
            priority=_PRIORITY_MAX,
            assumed_at_s=self._state.monotonic(),
            pod_version=share.version,
            writer=share.writer,
        )

    def _withdraw_excess(self, name: str, node: _Node) -> None:
        """Release waiting reservations, the last first, on GPUs that have more than they can."""
        ledger = self._state.ledger
        for uid, reservation in reversed(list(node.waiting.items())):
            if ledger.reservation(uid) is not reservation:
                del node.waiting[uid]
            elif (name, reservation.gpu_uuid) in {
                (over.node, over.gpu_uuid) for over in ledger.overcommitted()
            }:
                del node.waiting[uid]
                ledger.withdraw(reservation)
