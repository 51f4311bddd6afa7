"""What the node shows of its GPUs, kept as it should be whoever else writes there.

Two writes, for the API server keeps them apart: the annotation with the inventory, and the extended
resource in the node's status. A kubelet that starts sets resources that it does not know to 0; a
person, or another program, may write anything. Each change of the node that is heard is held
against what is wanted, and only what differs is written.

The resource never falls below what the pods that run request. Otherwise the pods of an ill GPU
would, in kube-scheduler's own accounting, use up what is free on the others; and a kubelet that
starts, which admits its running pods anew, might reject some as more than it can allocate.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from scheduler.agent.pods import PodRequest
from scheduler.cluster.api import Raw
from scheduler.cluster.backoff import Backoff
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from scheduler.model.node import Gpu
from scheduler.model.quantity import QuantityError, whole

log = structlog.get_logger(__name__)

# Between two rounds of writes, seconds: all that somebody who writes against us can cost.
_PAUSE_S = 0.5
_RETRY_CAP_S = 10.0
_HEALTHY_PERCENT = 100  # what one healthy GPU adds to the node's capacity


class Writable(Protocol):
    """The writes of `scheduler.cluster.one_node.OneNode`."""

    async def annotate(self, annotations: Mapping[str, str]) -> Raw:
        """Set annotations of the node."""

    async def set_capacity(self, resource: str, amount: int) -> Raw:
        """Set how much of an extended resource it has."""


@dataclass(frozen=True, slots=True)
class DesiredNodeState:
    """What the node is to show.

    Attributes:
        gpus: the inventory.
        requests: what its live pods request; None: not all of them were heard of yet.
    """

    gpus: tuple[Gpu, ...]
    requests: tuple[PodRequest, ...] | None = ()


class Publisher:
    """Writes what is `want`ed onto the node; also the handler that is told of the node.

    Attributes:
        trouble: why the node does not show what it should; empty when it does.
        writes: writes so far, by what was written.
    """

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.trouble = "nothing is known of the GPUs yet"
        self.writes = {"annotation": 0, "capacity": 0}
        self._sleep = sleep
        self._backoff = Backoff(cap_s=_RETRY_CAP_S)
        self._wanted: DesiredNodeState | None = None
        self._node: Raw | None = None
        self._heard = 0  # how often of the node
        self._wake = asyncio.Event()

    def want(self, shown: DesiredNodeState) -> None:
        """What the node is to show from now on."""
        self._wanted = shown
        self._wake.set()

    def replace(self, items: Iterable[Raw]) -> None:
        """The node, or that there is none."""
        self._hear(next(iter(items), None))

    def upsert(self, item: Raw) -> None:
        """The node changed."""
        self._hear(item)

    def delete(self, item: Raw) -> None:  # noqa: ARG002 - there is one node alone
        """The node is gone."""
        self._hear(None)

    def _hear(self, node: Raw | None) -> None:
        self._node = node
        self._heard += 1
        self._wake.set()

    async def run(self, link: Writable) -> None:
        """Keep the node as it is wanted, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.make_so(link)
            except ClusterError as error:
                told = _explained(error)
                if told != self.trouble:
                    log.warning("the node cannot be written", problem=told)
                self.trouble = told
                self._wake.set()
                await self._sleep(self._backoff.next_s())
            else:
                self._backoff.reset()
                await self._sleep(_PAUSE_S)

    async def make_so(self, link: Writable) -> None:
        """Write what differs from what is wanted, once.

        Raises:
            ClusterError: it could not be written.
        """
        wanted = self._wanted
        if wanted is None:
            return
        text = annotation(wanted.gpus)
        if self._node is not None and _annotations(self._node).get(ANNOTATION_GPUS) != text:
            await self._write("annotation", link.annotate({ANNOTATION_GPUS: text}))
        if self._node is not None:
            now = _amounts(self._node)
            amount = _amount_wanted(wanted, now)
            if now != (amount, amount):
                await self._write("capacity", link.set_capacity(RESOURCE_GPU_PERCENT, amount))
        self.trouble = "the node is not in the cluster" if self._node is None else ""

    async def _write(self, what: str, write: Awaitable[Raw]) -> None:
        heard = self._heard
        node = await write
        self.writes[what] += 1
        # What was heard meanwhile may be newer than the answer. If it is older, the next round
        # writes once more at worst, and changes nothing.
        if self._heard == heard:
            self._node = node


def annotation(gpus: Iterable[Gpu]) -> str:
    """The inventory as `scheduler.model.node.gpus_of` reads it."""
    return json.dumps([gpu.model_dump() for gpu in gpus], separators=(",", ":"))


def capacity(gpus: Iterable[Gpu], requests: Iterable[PodRequest] = ()) -> int:
    """Percent of GPUs that the node has to share, by Kubernetes' own accounting.

    That accounting knows no GPUs, only this sum and what pods request of it. So there are 100 for
    each healthy GPU, and what is requested by pods that were granted a GPU that is not healthy, or
    not there any more: nothing more fits than is free on healthy GPUs. Requests may exceed grants,
    so the pods of healthy GPUs may request more than 100 for each; what they request is there too.
    """
    healthy = {gpu.uuid for gpu in gpus if gpu.healthy}
    here = elsewhere = 0
    for request in requests:
        if request.gpu_uuid in healthy or not request.gpu_uuid:
            here += request.percent
        else:
            elsewhere += request.percent
    return max(_HEALTHY_PERCENT * len(healthy), here) + elsewhere


def _amount_wanted(wanted: DesiredNodeState, now: tuple[int | None, int | None]) -> int:
    """The capacity to be; nothing is taken away before it is known what pods run."""
    if wanted.requests is None:
        return max(capacity(wanted.gpus), *(amount or 0 for amount in now))
    return capacity(wanted.gpus, wanted.requests)


def _annotations(node: Raw) -> Mapping[str, Any]:
    return node.get("metadata", {}).get("annotations") or {}


def _amounts(node: Raw) -> tuple[int | None, int | None]:
    """Capacity and what of it is allocatable; None where it is missing or cannot be read."""
    status = node.get("status") or {}
    capacity, allocatable = (
        (status.get(part) or {}).get(RESOURCE_GPU_PERCENT) for part in ("capacity", "allocatable")
    )
    return _amount(capacity), _amount(allocatable)


def _amount(quantity: object) -> int | None:
    try:
        return whole(quantity)  # not the text: the API server turns 1000 into 1k
    except QuantityError:
        return None


def _explained(error: ClusterError) -> str:
    if isinstance(error, ApiError) and error.status == 403:  # noqa: PLR2004
        return (
            "RBAC: grant the verb patch on nodes and nodes/status to the agent, see "
            f"deploy/agent-rbac.yaml ({error.message})"
        )
    return str(error)
