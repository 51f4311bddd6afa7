"""The cluster that is filled: nodes in a ledger as live, and what the ledger does not count."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.ledger.ledger import DoesNotFitError, Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.placement.arrays import Int32Array, Int64Array
from scheduler.placement.options import Limits
from studies.packing.trace import Machine, TracePod

WHOLE = 100  # percent
GPU_MODEL = "any"
"""The one model in the ledger: pods of the trace run on any, or name the models they accept."""

# The trace has no GPU memory or MPS clients: shares, of at least 1 %, are the only limit.
_LIMITS = Limits(percent_max=WHOLE, server_context_mib=0, clients_max=WHOLE + 1)


@dataclass(frozen=True, slots=True)
class PackedPod:
    """Rows of the fleet on which a pod is placed."""

    node: int
    gpus: tuple[int, ...]  # as many as it requests


class PackedCluster:
    """Nodes, and what is free on them.

    A reservation in the ledger has one GPU. A pod of several whole GPUs is that many reservations
    on one node, all or none, with the vCPUs divided among them. The node's memory and the GPU
    models that a pod accepts are checked here, as kube-scheduler does live before it calls an
    extender.

    Attributes:
        ledger: ledger of all reservations.
        machines: machine of each node, by its row in the fleet.
        capacity_percent: capacity of all GPUs, in percent of one GPU.
        granted_percent: reserved share of all GPUs, in percent of one GPU.
        free_memory_mib: (n,) free memory of each node.
        free_percent: (n,) free share of each node's GPUs together, in percent of one GPU.
        most_free_percent: (n,) largest free share of one GPU of each node.
        free_gpus: (n,) number of entirely free GPUs of each node.
        models: GPU models, as the trace names them.
        model_of: (n,) index in `models` of each node's GPU model.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = tuple(machines)
        self.ledger = Ledger(_LIMITS)
        for row, machine in enumerate(machines):
            self.ledger.set_node(Node(machine.name, _gpus(row, machine), machine.cpu_milli))
        self.capacity_percent = WHOLE * sum(machine.gpus for machine in machines)
        self.granted_percent = 0
        self.cpu_milli: Int64Array = np.array([m.cpu_milli for m in machines], np.int64)
        self.memory_mib: Int64Array = np.array([m.memory_mib for m in machines], np.int64)
        self.free_memory_mib = self.memory_mib.copy()
        self.free_gpus: Int64Array = np.array([m.gpus for m in machines], np.int64)
        self.free_percent: Int64Array = WHOLE * self.free_gpus
        self.most_free_percent: Int64Array = np.where(self.free_gpus > 0, WHOLE, 0)
        self.models = sorted({machine.gpu_model for machine in machines})
        self.model_of: Int64Array = np.array(
            [self.models.index(machine.gpu_model) for machine in machines], np.int64
        )
        self._placed = 0
        self._allowed: dict[frozenset[str], NDArray[np.bool_]] = {}

    @property
    def free_cpu_milli(self) -> Int64Array:
        """(n,) free vCPUs of each node, in thousandths."""
        return self.ledger.fleet.arrays.node_free_cpu_milli[: len(self.machines)]

    def free_percents(self, node: int) -> Int32Array:
        """Return the free share of each GPU of the node."""
        fleet = self.ledger.fleet
        first = int(fleet.arrays.node_first_gpu[node])
        return fleet.arrays.gpu_free_percent[first : first + int(fleet.arrays.node_gpus[node])]

    def nodes_for(self, pod: TracePod) -> Int64Array:
        """Return the rows of the nodes on which the pod fits."""
        fits = (self.free_cpu_milli >= pod.cpu_milli) & (self.free_memory_mib >= pod.memory_mib)
        if pod.gpus == 1:
            fits &= self.most_free_percent >= pod.gpu_percent
        elif pod.gpus:
            fits &= self.free_gpus >= pod.gpus
        if pod.models:
            fits &= self._nodes_of(pod.models)
        return np.flatnonzero(fits)

    def entirely_free(self, node: int, count: int) -> tuple[int, ...]:
        """Return the rows of the first ``count`` entirely free GPUs of the node."""
        first = int(self.ledger.fleet.arrays.node_first_gpu[node])
        free = np.flatnonzero(self.free_percents(node) == WHOLE)[:count]
        return tuple(first + int(i) for i in free)

    def reserve(self, pod: TracePod, place: PackedPod) -> None:
        """Reserve what the pod requests.

        Raises:
            DoesNotFitError: the free capacity does not suffice; nothing is reserved then.
        """
        machine = self.machines[place.node]
        if len(place.gpus) != pod.gpus or len(set(place.gpus)) != pod.gpus:
            raise DoesNotFitError(f"{pod.name}: {pod.gpus} GPUs asked, {len(place.gpus)} chosen")
        if self.free_memory_mib[place.node] < pod.memory_mib:
            free_mib = int(self.free_memory_mib[place.node])
            raise DoesNotFitError(
                f"node {machine.name}: {free_mib:,} MiB free, {pod.memory_mib:,} asked"
            )
        assumed: list[str] = []
        try:
            for reservation in self._reservations(pod, place):
                self.ledger.assume(reservation)
                assumed.append(reservation.uid)
        except DoesNotFitError:
            for uid in assumed:
                self.ledger.release(uid)
            raise
        self._placed += 1
        self.granted_percent += pod.share_percent
        self.free_memory_mib[place.node] -= pod.memory_mib
        self.free_percent[place.node] -= pod.share_percent
        percents = self.free_percents(place.node)
        if len(percents):
            self.most_free_percent[place.node] = percents.max()
            self.free_gpus[place.node] = np.count_nonzero(percents == WHOLE)

    def _reservations(self, pod: TracePod, place: PackedPod) -> list[Reservation]:
        parts = max(pod.gpus, 1)
        part_milli, remainder_milli = divmod(pod.cpu_milli, parts)
        uuids = [gpu.uuid for gpu in map(self.ledger.fleet.gpus.__getitem__, place.gpus) if gpu]
        return [
            Reservation(
                uid=f"{self._placed}/{part}",
                namespace="",
                name=pod.name,
                node=self.machines[place.node].name,
                cpu_milli=part_milli + (remainder_milli if part == 0 else 0),
                gpu_uuid=uuids[part] if pod.gpus else None,
                gpu_percent=pod.gpu_percent,
            )
            for part in range(parts)
        ]

    def _nodes_of(self, models: frozenset[str]) -> NDArray[np.bool_]:
        if models not in self._allowed:
            wanted = [self.models.index(model) for model in models if model in self.models]
            self._allowed[models] = np.isin(self.model_of, wanted)
        return self._allowed[models]


def _gpus(row: int, machine: Machine) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{row}-{index}",
            model=GPU_MODEL,
            memory_mib=1,
            multiprocessors=1,
            healthy=True,
        )
        for index in range(machine.gpus)
    )
