"""The node's GPU inventory, capacity and taints, kept as desired whatever other clients write.

There are three writes. The API server separates the annotation with the inventory from the extended
resource in the node's status; and taints are one list, which is written only over the version that
was read, because others write it, too. A kubelet that starts sets resources that it does not
know to 0; a person or another program may write anything. Each reported change of the node is
compared with the desired state, and only differences are written.

The resource never falls below the requests of the running pods. Otherwise kube-scheduler's own
accounting would charge the pods of an unhealthy GPU to the free share of the others, and a kubelet
that starts, which admits its running pods again, might reject some for lack of capacity.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from scheduler.agent.node_taints import NodeTaints
from scheduler.agent.pods.node_pods import PodRequest
from scheduler.agent.taints import taints_of
from scheduler.cluster.api import Raw
from scheduler.cluster.backoff import Backoff
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from scheduler.model.node import Gpu
from scheduler.model.quantity import QuantityError, whole

log = structlog.get_logger(__name__)

# Pause between two writes, seconds: it limits the cost of a client that overwrites them.
_PAUSE_S = 0.5
_RETRY_CAP_S = 10.0
_HEALTHY_PERCENT = 100  # the share of one healthy GPU in the node's capacity


class Writable(Protocol):
    """The writes of `scheduler.cluster.one_node.OneNode`."""

    async def annotate(self, annotations: Mapping[str, str | None]) -> Raw:
        """Set or remove annotations of the node."""

    async def set_capacity(self, resource: str, amount: int | None) -> Raw:
        """Set or remove the node's capacity of an extended resource."""

    async def set_taints(self, taints: Sequence[Raw], version: str) -> Raw:
        """Set all taints of the node, if it still has this version."""


@dataclass(frozen=True, slots=True)
class DesiredNodeState:
    """The desired inventory and capacity.

    Attributes:
        gpus: inventory of the node.
        requests: requests of the node's live pods; None: not all pods are known yet.
    """

    gpus: tuple[Gpu, ...]
    requests: tuple[PodRequest, ...] | None = ()


class Publisher:
    """Writes the desired state to the node; it is also the node's handler.

    Attributes:
        trouble: reason why the node is not as desired; empty if it is.
        writes: number of writes, by written field.

    Args:
        taints: desired taints.
        sleep: pause between two writes.
    """

    def __init__(
        self,
        taints: NodeTaints | None = None,
        *,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.trouble = "no GPU has been read yet"
        self.writes = {"annotation": 0, "capacity": 0, "taints": 0}
        self._taints = taints or NodeTaints()
        self._sleep = sleep
        self._backoff = Backoff(cap_s=_RETRY_CAP_S)
        self._desired: DesiredNodeState | None = None
        self._node: Raw | None = None
        self._node_reports = 0
        self._wake = asyncio.Event()

    @property
    def node(self) -> Raw | None:
        """The Node as last reported; None: not yet, or it is not in the cluster."""
        return self._node

    def set_desired(self, state: DesiredNodeState) -> None:
        """Set the desired state."""
        self._desired = state
        self._wake.set()

    def replace(self, items: Iterable[Raw]) -> None:
        """Set the node, or its absence."""
        self._set_node(next(iter(items), None))

    def upsert(self, item: Raw) -> None:
        """Set the changed node."""
        self._set_node(item)

    def delete(self, item: Raw) -> None:  # noqa: ARG002 - there is only one node
        """Set the node's absence."""
        self._set_node(None)

    def _set_node(self, node: Raw | None) -> None:
        self._node = node
        self._node_reports += 1
        self._wake.set()

    async def run(self, link: Writable) -> None:
        """Keep the node in the desired state until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.reconcile(link)
            except ClusterError as error:
                trouble = _explained(error)
                if trouble != self.trouble:
                    log.warning("node cannot be written", problem=trouble)
                self.trouble = trouble
                self._wake.set()
                await self._sleep(self._backoff.next_s())
            else:
                self._backoff.reset()
                await self._sleep(_PAUSE_S)

    async def reconcile(self, link: Writable) -> None:
        """Write the differences from the desired state, once.

        Raises:
            ClusterError: a write failed.
        """
        desired = self._desired
        if desired is None:
            return
        text = annotation(desired.gpus)
        if self._node is not None and _annotations(self._node).get(ANNOTATION_GPUS) != text:
            await self._write("annotation", link.annotate({ANNOTATION_GPUS: text}))
        if self._node is not None:
            amounts = _amounts(self._node)
            amount = _desired_amount(desired, amounts)
            if amounts != (amount, amount):
                await self._write("capacity", link.set_capacity(RESOURCE_GPU_PERCENT, amount))
            await self._reconcile_taints(link, desired, has_gpus=amount > 0)
        self.trouble = "the node is not in the cluster" if self._node is None else ""

    async def withdraw(self, link: Writable) -> None:
        """Remove inventory and capacity from the node, and the taint of its GPUs.

        Raises:
            ClusterError: a write failed.
        """
        if self._node is not None:
            await self._write("annotation", link.annotate({ANNOTATION_GPUS: None}))
            await self._write("capacity", link.set_capacity(RESOURCE_GPU_PERCENT, None))
            await self._reconcile_taints(link, DesiredNodeState(()), has_gpus=False)

    async def _reconcile_taints(
        self, link: Writable, desired: DesiredNodeState, *, has_gpus: bool
    ) -> None:
        assert self._node is not None  # noqa: S101 - the caller has checked it
        self._taints.observe(desired.gpus, desired.requests)
        taints = taints_of(self._node)
        wanted = self._taints.desired(taints, has_gpus=has_gpus)
        if wanted == taints:
            return
        version = self._node["metadata"]["resourceVersion"]
        try:
            await self._write("taints", link.set_taints(wanted, version))
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # the watch reports a newer version soon
                raise

    async def _write(self, field: str, write: Awaitable[Raw]) -> None:
        reports = self._node_reports
        node = await write
        self.writes[field] += 1
        # A report during the write may be newer than the answer. If it is older, the next round at
        # worst repeats the write without effect.
        if self._node_reports == reports:
            self._node = node


def annotation(gpus: Iterable[Gpu]) -> str:
    """Serialise the inventory for `scheduler.model.node.gpus_of`."""
    return json.dumps([gpu.model_dump() for gpu in gpus], separators=(",", ":"))


def capacity(gpus: Iterable[Gpu], requests: Iterable[PodRequest] = ()) -> int:
    """Compute the node's capacity for Kubernetes' own accounting, in percent of a GPU.

    That accounting knows only this sum and the pods' requests, no GPUs. So each healthy GPU adds
    100, and pods whose granted GPU is unhealthy or absent add their requests: then no more fits
    than is free on healthy GPUs. Requests may exceed grants, so the pods of healthy GPUs may
    request more than 100 each; the capacity covers that too.
    """
    healthy = {gpu.uuid for gpu in gpus if gpu.healthy}
    on_healthy = elsewhere = 0
    for request in requests:
        if request.gpu_uuid in healthy or not request.gpu_uuid:
            on_healthy += request.percent
        else:
            elsewhere += request.percent
    return max(_HEALTHY_PERCENT * len(healthy), on_healthy) + elsewhere


def _desired_amount(desired: DesiredNodeState, amounts: tuple[int | None, int | None]) -> int:
    """Compute the capacity; it does not fall before the pods are known."""
    if desired.requests is None:
        return max(capacity(desired.gpus), *(amount or 0 for amount in amounts))
    return capacity(desired.gpus, desired.requests)


def _annotations(node: Raw) -> Mapping[str, Any]:
    return node.get("metadata", {}).get("annotations") or {}


def _amounts(node: Raw) -> tuple[int | None, int | None]:
    """Read capacity and allocatable; None if missing or invalid."""
    status = node.get("status") or {}
    capacity, allocatable = (
        (status.get(part) or {}).get(RESOURCE_GPU_PERCENT) for part in ("capacity", "allocatable")
    )
    return _amount(capacity), _amount(allocatable)


def _amount(quantity: object) -> int | None:
    try:
        return whole(quantity)  # not the text: the API server converts 1000 to 1k
    except QuantityError:
        return None


def _explained(error: ClusterError) -> str:
    if isinstance(error, ApiError) and error.status == 403:  # noqa: PLR2004
        return (
            "RBAC: grant the verb patch on nodes and nodes/status to the agent, see "
            f"deploy/agent-rbac.yaml ({error.message})"
        )
    return str(error)
