"""Other claimants of the node's GPUs: a GPU is shared by esg-scheduler, or somebody else uses it.

A device plugin allocates whole GPUs and knows no pods of ours; MPS in exclusive mode would break
the processes that already compute on a GPU. So no GPU is taken while one of them claims it. A GPU
that was taken stays so as long as pods with grants run on it; no further pods are placed there.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from scheduler.agent.gpus.reading import DeviceReading
from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.permits import read_permits, write_permits
from scheduler.cluster.api import Raw
from scheduler.model.pod_resources import is_whole_gpu
from scheduler.model.quantity import QuantityError, whole

log = structlog.get_logger(__name__)

_UNKNOWN = "it is not known yet who else uses it: the node and its pods have not been listed"
_NODE_REMEDY = (
    "keep the device plugin off this node, or remove the node from esg-scheduler "
    "(docs/install.md, nodes opt in)"
)


@dataclass(frozen=True, slots=True)
class NodeUsers:
    """The node's state that decides whether its GPUs may be taken.

    Attributes:
        node: node object; None: not known.
        granted: pods with a share, by UID.
        whole_gpu_pods: names of live pods that request whole GPUs.
    """

    node: Raw | None
    granted: Mapping[str, GrantedPod]
    whole_gpu_pods: Collection[str]


class Claims:
    """Taken and claimed GPUs.

    Args:
        permits: file of the taken GPUs, by which `esg mps` starts its daemons; None: there is none,
            and processes on a GPU are ignored, because they may be those of its MPS server.
        uid_of: function that returns the pod of a process.
    """

    def __init__(self, permits: Path | None, *, uid_of: Callable[[int], str | None]) -> None:
        self._permits = permits
        self._uid_of = uid_of
        self._permitted = (read_permits(permits) if permits else None) or frozenset()
        self._claims: dict[str, str] = {}

    def update(self, devices: Iterable[DeviceReading], users: NodeUsers | None) -> None:
        """Decide on each GPU; ``users`` is None while they are not known."""
        known_devices = tuple(devices)
        if users is None:
            self._claims = {
                d.uuid: _UNKNOWN for d in known_devices if d.uuid not in self._permitted
            }
            return
        self._claims = {
            device.uuid: claim for device in known_devices if (claim := self.claim(device, users))
        }
        in_use = {pod.gpu_uuid for pod in users.granted.values()}
        free = {device.uuid for device in known_devices} - self._claims.keys()
        self._set_permitted(free | (self._permitted & in_use))

    def of(self, uuid: str) -> str:
        """Return who claims the GPU and what to do; empty without a claimant."""
        return self._claims.get(uuid, "")

    def claim(self, device: DeviceReading, users: NodeUsers | None) -> str:
        """Return who claims the GPU, without taking it; empty without a known claimant."""
        if users is None:
            return ""
        return _node_claim(users) or self._process_claim(device, users.granted)

    def _process_claim(self, device: DeviceReading, granted: Mapping[str, GrantedPod]) -> str:
        """Name a process without a grant on a GPU that was not taken; later ones are MPS's."""
        if self._permits is None or device.uuid in self._permitted:
            return ""
        for process in device.processes:
            uid = self._uid_of(process.pid)
            if uid not in granted:
                owner = f"of the pod with UID {uid}" if uid else "of no pod"
                return (
                    f"process {process.pid} {owner} computes on it; end that process, and the GPU "
                    "is taken"
                )
        return ""

    def _set_permitted(self, uuids: frozenset[str] | set[str]) -> None:
        permitted = frozenset(uuids)
        if permitted == self._permitted and (self._permits is None or self._permits.exists()):
            return
        if self._permits is not None:
            try:
                write_permits(self._permits, permitted)
            except OSError as error:
                log.error("permits cannot be written", problem=str(error))
                return
        self._permitted = permitted


def _node_claim(users: NodeUsers) -> str:
    """Name what offers or holds whole GPUs of the node; empty if nothing does."""
    allocatable = ((users.node or {}).get("status") or {}).get("allocatable") or {}
    offered = sorted(
        f"{name}: {amount}"
        for name, amount in allocatable.items()
        if is_whole_gpu(name) and _is_positive(amount)
    )
    if offered:
        return f"the node offers {', '.join(offered)} by a device plugin; {_NODE_REMEDY}"
    if users.whole_gpu_pods:
        pods = sorted(users.whole_gpu_pods)
        names = ", ".join(pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")  # noqa: PLR2004
        return f"pods hold whole GPUs of the node: {names}; delete them, or wait for their end"
    return ""


def _is_positive(quantity: object) -> bool:
    try:
        return whole(quantity) > 0
    except QuantityError:
        return False
