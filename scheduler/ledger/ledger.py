"""The ledger: every reservation, seen in the cluster or with its Binding under way.

Its rule: nothing is *assumed* beyond what a GPU has. What the cluster shows is *confirmed* in any
case, because it is the truth; an over-commit in the cluster is reported, never hidden.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from scheduler.ledger.demand_mix import DemandCounter
from scheduler.ledger.gpu_names import GpuNames, NameConflict
from scheduler.ledger.pools import Pools
from scheduler.ledger.reservation import Reservation
from scheduler.model.names import POOL_HOLDER, POOL_MEMBER
from scheduler.model.node import Node
from scheduler.placement.fleet import Fleet
from scheduler.placement.fragmentation import RequestClass, RequestMix
from scheduler.placement.options import Limits


class DoesNotFitError(Exception):
    """The reservation does not fit on its node or GPU; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Overcommit:
    """A GPU with more reserved than it has."""

    node: str
    gpu_uuid: str
    index: int
    percent: int  # reserved, in total
    memory_mib: int  # reserved, in total
    pods: tuple[str, ...]  # namespace/name


class Ledger:
    """Reservations by pod UID, and the `Fleet` of free capacity.

    A GPU whose UUID is known under two node names, as after a machine was renamed, would be given
    away twice. So it counts as unhealthy until one name is left: no node publishes it under another
    name, and no pod of such a node has a share of it.

    Attributes:
        fleet: nodes and GPUs with their free capacity; only the ledger writes it.
        limits: limits of what the pods of one GPU may reserve together.
        pools: slices of GPUs that pools hold, and their members.
        free_capacity_epoch: number of events that may have freed capacity: a release, a node that
            was added or changed, a holder that is seen bound.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.fleet = Fleet(limits)
        self.limits = self.fleet.limits
        self.pools = Pools()
        self.free_capacity_epoch = 0
        self._reservations: dict[str, Reservation] = {}
        self._by_node: defaultdict[str, set[str]] = defaultdict(set)
        self._demand: DemandCounter | None = None
        self._published: dict[str, Node] = {}  # by name, as the cluster shows it
        self._names = GpuNames()

    # -- nodes ---------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add or change a node; reservations on it stay."""
        previous = self._published.get(node.name)
        if previous == node:
            return
        self._published[node.name] = node
        changed = self._change_names(node.name, previous, node)
        self._apply({node.name, *changed})
        self.fleet.compact_if_sparse()

    def remove_node(self, name: str) -> None:
        """Remove a node; reservations on it stay until their pods end, in case it returns."""
        previous = self._published.pop(name, None)
        self.fleet.remove_node(name)
        for uid in self._by_node.get(name, ()):
            self._count(self._reservations[uid])
        self._apply(self._change_names(name, previous, None))

    def _change_names(self, name: str, before: Node | None, after: Node | None) -> set[str]:
        """Count the names of a node's GPUs; return the nodes of GPUs that became shared or alone.

        The node itself is not among them.
        """
        before_uuids = {gpu.uuid for gpu in before.gpus} if before else set()
        after_uuids = {gpu.uuid for gpu in after.gpus} if after else set()
        changed: set[str] = set()
        for uuid in before_uuids - after_uuids:
            changed |= self._names.remove(uuid, name)
        for uuid in after_uuids - before_uuids:
            changed |= self._names.add(uuid, name)
        return changed - {name}

    def _apply(self, nodes: Iterable[str]) -> None:
        """Write nodes to the fleet with what is reserved on them; unknown ones are left out."""
        for name in nodes:
            node = self._published.get(name)
            if node is None:
                continue
            self.free_capacity_epoch += 1
            self.fleet.set_node(self._without_shared(node))
            for uid in self._by_node.get(name, ()):
                self.fleet.reserve(self._reservations[uid])
                self._count(self._reservations[uid])

    def _without_shared(self, node: Node) -> Node:
        if self._names.shared.isdisjoint(gpu.uuid for gpu in node.gpus):
            return node
        gpus = tuple(
            gpu.model_copy(update={"healthy": gpu.healthy and gpu.uuid not in self._names.shared})
            for gpu in node.gpus
        )
        return replace(node, gpus=gpus)

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        return list(self.fleet.node_row)

    # -- reservations --------------------------------------------------------------------------

    def assume(self, reservation: Reservation) -> None:
        """Reserve before the Binding is written.

        Raises:
            DoesNotFitError: node, GPU or free capacity do not suffice; nothing is reserved.
        """
        if reservation.uid in self._reservations:
            previous = self._reservations[reservation.uid]
            raise DoesNotFitError(f"the pod has a reservation already: {_place(previous)}")
        self._check(reservation)
        self._reserve(reservation)

    def confirm(self, reservation: Reservation) -> None:
        """Reserve what the cluster shows, in place of what was assumed for that pod."""
        confirmed = reservation.as_confirmed()
        previous = self._reservations.get(reservation.uid)
        if previous == confirmed and previous.labels == confirmed.labels:
            return
        self._release(reservation.uid)
        self._reserve(confirmed)
        self.free_capacity_epoch += confirmed.pool == POOL_HOLDER  # members may wait for its slice

    def adopt(self, reservation: Reservation) -> None:
        """Reserve what a single read of the pod showed, in place of what was assumed.

        It stays an assumption until the watch confirms it: a list that began before that read does
        not show the pod bound, and lists release what is confirmed and missing from them.
        """
        self._release(reservation.uid)
        self._reserve(reservation)

    def release(self, uid: str) -> Reservation | None:
        """Release the pod's reservation and return it; None where there is none."""
        released = self._release(uid)
        self.free_capacity_epoch += released is not None
        return released

    def withdraw(self, assumed: Reservation) -> bool:
        """Release this very reservation; False where it is gone or replaced.

        The caller waited between the assumption and its end: it must not release what the cluster
        has shown meanwhile.
        """
        if self._reservations.get(assumed.uid) is not assumed:
            return False
        self.release(assumed.uid)
        return True

    def reservation(self, uid: str) -> Reservation | None:
        """Return the pod's reservation, or None."""
        return self._reservations.get(uid)

    def reservations(self) -> Iterable[Reservation]:
        """Return all reservations."""
        return self._reservations.values()

    def on_node(self, node: str) -> list[Reservation]:
        """Return all reservations on one node."""
        return [self._reservations[uid] for uid in self._by_node.get(node, ())]

    def unconfirmed_since(self, moment_s: float) -> list[Reservation]:
        """Return those assumed at ``moment_s`` or before that the cluster has not shown."""
        return [
            reservation
            for reservation in self._reservations.values()
            if reservation.assumed_at_s is not None and reservation.assumed_at_s <= moment_s
        ]

    # -- demand --------------------------------------------------------------------------------

    def mix(self, gpu_model: str) -> RequestMix:
        """Return the mix of the reservations on GPUs of that model, of nodes that exist.

        The ledger counts from the first call on.
        """
        if self._demand is None:
            self._demand = DemandCounter()
            for reservation in self._reservations.values():
                self._count(reservation)
        return self._demand.mix(gpu_model)

    # -- reports -------------------------------------------------------------------------------

    def overcommitted(self) -> list[Overcommit]:
        """Return the GPUs with more reserved than they have."""
        fleet = self.fleet
        count = len(fleet.gpus)
        overcommitted = (
            (fleet.arrays.gpu_free_percent[:count] < 0)
            | (fleet.arrays.gpu_free_memory_mib[:count] < 0)
            | (fleet.arrays.gpu_free_clients[:count] < 0)
        )
        if not overcommitted.any():
            return []
        return [
            Overcommit(
                node.name,
                gpu.uuid,
                gpu.index,
                self.limits.percent_max - int(fleet.arrays.gpu_free_percent[gpu_row]),
                gpu.memory_mib
                - self.limits.server_context_mib
                - int(fleet.arrays.gpu_free_memory_mib[gpu_row]),
                tuple(f"{pod.namespace}/{pod.name}" for pod in self._on_gpu(node.name, gpu.uuid)),
            )
            for node, gpu_row in self._gpu_rows()
            if overcommitted[gpu_row] and (gpu := fleet.gpus[gpu_row]) is not None
        ]

    def name_conflicts(self) -> list[NameConflict]:
        """Return the GPUs that are known under several node names, for each node that has one."""
        return [
            NameConflict(name, gpu.index, gpu.uuid, self._names.others(gpu.uuid, name))
            for uuid in sorted(self._names.shared)
            for name in self._names.of(uuid)
            if (node := self._published.get(name)) is not None
            for gpu in node.gpus
            if gpu.uuid == uuid
        ]

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the nodes, their GPUs and the reservations as JSON."""
        return [self.node_json(node) for node in self.fleet.nodes if node is not None]

    def node_json(
        self, node: Node, pod_json: Callable[[Reservation], Any] = Reservation.as_json
    ) -> dict[str, Any]:
        """Return a node, its GPUs and their reservations as JSON.

        Args:
            node: node of the ledger.
            pod_json: returns what is told of a reservation. Default: all that a replay needs.
        """
        fleet, reservations = self.fleet, self.on_node(node.name)
        row = fleet.node_row[node.name]
        return {
            "name": node.name,
            "cpu_milli": node.cpu_milli,
            "cpu_free_milli": int(fleet.arrays.node_free_cpu_milli[row]),
            "gpus": [
                gpu.model_dump()
                | {
                    "free_percent": int(fleet.arrays.gpu_free_percent[gpu_row]),
                    "free_memory_mib": int(fleet.arrays.gpu_free_memory_mib[gpu_row]),
                    "pods": [pod_json(pod) for pod in reservations if pod.gpu_uuid == gpu.uuid],
                }
                for gpu_row, gpu in enumerate(
                    node.gpus, start=int(fleet.arrays.node_first_gpu[row])
                )
            ],
        }

    def _gpu_rows(self) -> Iterator[tuple[Node, int]]:
        for row, node in enumerate(self.fleet.nodes):
            if node is not None:
                first = int(self.fleet.arrays.node_first_gpu[row])
                for gpu_row in range(first, first + len(node.gpus)):
                    yield node, gpu_row

    def _on_gpu(self, node: str, uuid: str) -> list[Reservation]:
        return [pod for pod in self.on_node(node) if pod.gpu_uuid == uuid]

    # -- the arithmetic ------------------------------------------------------------------------

    def _check(self, reservation: Reservation) -> None:
        fleet, views = self.fleet, self.fleet.views
        node_row = fleet.node_row.get(reservation.node)
        if node_row is None:
            raise DoesNotFitError(f"node {reservation.node} is not known")
        if (free := views.cpu_milli[node_row]) < reservation.cpu_milli:
            raise DoesNotFitError(
                f"node {reservation.node}: {max(free, 0) / 1000:g} vCPU free, "
                f"{reservation.cpu_milli / 1000:g} asked"
            )
        if reservation.gpu_uuid is None:
            return
        gpu_row = fleet.gpu_row(reservation.node, reservation.gpu_uuid)
        if gpu_row < 0 or views.model[gpu_row] < 0:
            raise DoesNotFitError(f"{_place(reservation)} is not there or not healthy")
        if problem := self.pools.problem(reservation):
            raise DoesNotFitError(f"{_place(reservation)}: {problem}")
        percent, memory = views.percent[gpu_row], views.memory_mib[gpu_row]
        if percent < reservation.gpu_percent or memory < reservation.memory_mib:
            raise DoesNotFitError(
                f"{_place(reservation)}: {max(percent, 0)} % free, "
                f"{reservation.gpu_percent} % asked; "
                f"{max(memory, 0):,} MiB free, {reservation.memory_mib:,} asked"
            )
        if views.clients[gpu_row] < 1:
            raise DoesNotFitError(
                f"{_place(reservation)}: all {self.limits.clients_max} MPS clients taken"
            )

    def _reserve(self, reservation: Reservation) -> None:
        self._reservations[reservation.uid] = reservation
        self._by_node[reservation.node].add(reservation.uid)
        self.pools.add(reservation)
        self.fleet.reserve(reservation)
        if self._demand is not None:
            self._count(reservation)
        if reservation.gpu_uuid is not None:
            changed = self._names.add(reservation.gpu_uuid, reservation.node)
            if changed:  # hardly ever
                self._apply(changed)

    def _release(self, uid: str) -> Reservation | None:
        reservation = self._reservations.pop(uid, None)
        if reservation is not None:
            on_node = self._by_node[reservation.node]
            on_node.discard(uid)
            if not on_node:
                del self._by_node[reservation.node]
            self.pools.remove(reservation)
            self.fleet.release(reservation)
            if self._demand is not None:
                self._demand.remove(uid)
            if reservation.gpu_uuid is not None:
                changed = self._names.remove(reservation.gpu_uuid, reservation.node)
                if changed:
                    self._apply(changed)
        return reservation

    def _count(self, reservation: Reservation) -> None:
        """Count the reservation in the mix, if that is counted, as long as its GPU exists.

        Members of pools do not count: they take the room that their holders have.
        """
        if self._demand is None or reservation.gpu_uuid is None or reservation.pool == POOL_MEMBER:
            return
        gpu_row = self.fleet.gpu_row(reservation.node, reservation.gpu_uuid)
        gpu = self.fleet.gpus[gpu_row] if gpu_row >= 0 else None
        if gpu is None:
            self._demand.remove(reservation.uid)
        else:
            request = RequestClass(
                reservation.cpu_milli, reservation.gpu_percent, reservation.memory_mib
            )
            self._demand.add(reservation.uid, gpu.model, request)


def _place(reservation: Reservation) -> str:
    return f"GPU {reservation.gpu_uuid} of node {reservation.node}"
