"""The ledger: every hold on every GPU, seen in the cluster or with its Binding under way.

The rule it keeps: nothing is *assumed* beyond what a GPU has. What the cluster shows is *confirmed*
even so, for it is the truth; an over-commit that it shows is told, never hidden.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from scheduler.ledger.demand_mix import DemandCounter
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Node
from scheduler.placement.fleet import Fleet
from scheduler.placement.fragmentation import RequestClass, RequestMix
from scheduler.placement.options import Limits


class DoesNotFitError(Exception):
    """The node or GPU cannot hold what is to be assumed; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Overcommit:
    """A GPU that holds more than it has."""

    node: str
    gpu_uuid: str
    index: int
    percent: int  # granted, in total
    memory_mib: int  # granted, in total
    pods: tuple[str, ...]  # namespace/name of those that hold it


class Ledger:
    """Reservations by pod UID, and the `Fleet` of what they leave free."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.fleet = Fleet(limits)
        self.limits = self.fleet.limits
        self.openings = 0  # how often room may have come: a hold was let go, a node came or changed
        self._reservations: dict[str, Reservation] = {}
        self._by_node: defaultdict[str, set[str]] = defaultdict(set)
        self._asked: DemandCounter | None = None

    # -- nodes ---------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """A node came or changed; what is held on it stays held."""
        row = self.fleet.node_row.get(node.name)
        if row is not None and self.fleet.nodes[row] == node:
            return
        self.openings += 1
        self.fleet.set_node(node)
        for uid in self._by_node.get(node.name, ()):
            self.fleet.reserve(self._reservations[uid])
            self._count(self._reservations[uid])
        self.fleet.compact_if_sparse()

    def remove_node(self, name: str) -> None:
        """A node went; holds on it are kept until their pods are gone, should it return."""
        self.fleet.remove_node(name)
        for uid in self._by_node.get(name, ()):
            self._count(self._reservations[uid])

    def node_names(self) -> list[str]:
        """The nodes that are there."""
        return list(self.fleet.node_row)

    # -- reservations --------------------------------------------------------------------------

    def assume(self, reservation: Reservation) -> None:
        """Hold it before its Binding is written.

        Raises:
            DoesNotFitError: the node, the GPU or what is free on it is not enough; nothing is held.
        """
        if reservation.uid in self._reservations:
            held = self._reservations[reservation.uid]
            raise DoesNotFitError(f"the pod holds {_place(held)} already")
        self._check(reservation)
        self._hold(reservation)

    def confirm(self, reservation: Reservation) -> None:
        """Hold what the cluster shows, whatever was assumed for that pod before."""
        held = self._reservations.get(reservation.uid)
        confirmed = reservation.as_confirmed()
        if held == confirmed:
            return
        self._let_go(reservation.uid)
        self._hold(confirmed)

    def adopt(self, reservation: Reservation) -> None:
        """Hold what a single read of the pod showed, in place of what was assumed.

        It stays an assumption until the watch confirms it: a list that began before that read would
        not show the pod bound, and lists free what is confirmed and missing from them.
        """
        self._let_go(reservation.uid)
        self._hold(reservation)

    def release(self, uid: str) -> Reservation | None:
        """Let go of what the pod holds; what it held, or None."""
        held = self._let_go(uid)
        self.openings += held is not None
        return held

    def withdraw(self, assumed: Reservation) -> bool:
        """Let go of this very hold; False where it is held no more, or another in its place.

        For who waited between the assumption and its end: what the cluster has shown meanwhile is
        not theirs to give back.
        """
        if self._reservations.get(assumed.uid) is not assumed:
            return False
        self.release(assumed.uid)
        return True

    def reservation(self, uid: str) -> Reservation | None:
        """What the pod holds."""
        return self._reservations.get(uid)

    def reservations(self) -> Iterable[Reservation]:
        """All holds."""
        return self._reservations.values()

    def on_node(self, node: str) -> list[Reservation]:
        """All holds on one node."""
        return [self._reservations[uid] for uid in self._by_node.get(node, ())]

    def unconfirmed_since(self, moment: float) -> list[Reservation]:
        """Assumed at ``moment`` or before and not seen in the cluster: their fate wants asking."""
        return [
            held
            for held in self._reservations.values()
            if held.assumed_at is not None and held.assumed_at <= moment
        ]

    # -- what is asked ---------------------------------------------------------------------------

    def mix(self, gpu_model: str) -> RequestMix:
        """What the holds on GPUs of that model ask, most frequent first; of nodes that are there.

        It is counted from the first question on.
        """
        if self._asked is None:
            self._asked = DemandCounter()
            for held in self._reservations.values():
                self._count(held)
        return self._asked.mix(gpu_model)

    # -- what to show --------------------------------------------------------------------------

    def overcommitted(self) -> list[Overcommit]:
        """GPUs that hold more than they have."""
        fleet = self.fleet
        count = len(fleet.gpus)
        over = (
            (fleet.arrays.gpu_free_percent[:count] < 0)
            | (fleet.arrays.gpu_free_memory_mib[:count] < 0)
            | (fleet.arrays.gpu_free_clients[:count] < 0)
        )
        if not over.any():
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
                tuple(
                    f"{held.namespace}/{held.name}" for held in self._on_gpu(node.name, gpu.uuid)
                ),
            )
            for node, gpu_row in self._gpu_rows()
            if over[gpu_row] and (gpu := fleet.gpus[gpu_row]) is not None
        ]

    def snapshot(self) -> list[dict[str, Any]]:
        """The nodes, their GPUs and who holds what, as JSON."""
        return [self._node_json(node) for node in self.fleet.nodes if node is not None]

    def _node_json(self, node: Node) -> dict[str, Any]:
        fleet = self.fleet
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
                    "pods": [held.as_json() for held in self._on_gpu(node.name, gpu.uuid)],
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
        return [held for held in self.on_node(node) if held.gpu_uuid == uuid]

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

    def _hold(self, reservation: Reservation) -> None:
        self._reservations[reservation.uid] = reservation
        self._by_node[reservation.node].add(reservation.uid)
        self.fleet.reserve(reservation)
        self._count(reservation)

    def _let_go(self, uid: str) -> Reservation | None:
        held = self._reservations.pop(uid, None)
        if held is not None:
            self._by_node[held.node].discard(uid)
            if not self._by_node[held.node]:
                del self._by_node[held.node]
            self.fleet.release(held)
            if self._asked is not None:
                self._asked.forget(uid)
        return held

    def _count(self, held: Reservation) -> None:
        """Note what it asks, if that is counted, as long as its GPU is there."""
        if self._asked is None or held.gpu_uuid is None:
            return
        gpu_row = self.fleet.gpu_row(held.node, held.gpu_uuid)
        gpu = self.fleet.gpus[gpu_row] if gpu_row >= 0 else None
        if gpu is None:
            self._asked.forget(held.uid)
        else:
            ask = RequestClass(held.cpu_milli, held.gpu_percent, held.memory_mib)
            self._asked.note(held.uid, gpu.model, ask)


def _place(reservation: Reservation) -> str:
    return f"GPU {reservation.gpu_uuid} of node {reservation.node}"
