"""Records of the shares on each node's GPUs, which all replicas of the extender update.

Kubernetes fences a pod, which is bound once, but no GPU: two replicas may bind two pods to one. So
each node has a record, a Lease with an annotation, that is written over the version that was read.
A Lease, because it is small, only its writers watch it, and API servers store it fast. The Node
itself would wake every kubelet's and scheduler's watch of nodes at each Binding.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.leases import LeaseClient, StoredLease
from scheduler.model.names import ANNOTATION_SHARES, GROUP

_LABEL, _KIND = f"{GROUP}/record", "gpus"
RECORD_LABELS = {"app.kubernetes.io/name": "esg-scheduler", _LABEL: _KIND}
RECORD_SELECTOR = f"{_LABEL}={_KIND}"
_PREFIX = "gpus-"
_NAME_MAX = 253  # characters of an object's name


@dataclass(frozen=True, slots=True)
class RecordedShare:
    """A share of a GPU that a pod has, or that its Binding may still give it.

    Attributes:
        uid: the pod's UID.
        namespace: the pod's namespace.
        name: the pod's name.
        gpu: UUID of the GPU.
        percent: of the GPU.
        memory_mib: of the GPU.
        version: the pod's version in its Binding.
        writer: the process that sent, or will send, its Binding; empty: the pod is bound.
    """

    uid: str
    namespace: str
    name: str
    gpu: str
    percent: int
    memory_mib: int
    version: int = 0
    writer: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node's shares as they were read, and the version of their record."""

    version: str
    shares: tuple[RecordedShare, ...]


class NodeRecords:
    """Reads and writes the records of nodes."""

    def __init__(self, leases: LeaseClient) -> None:
        self._leases = leases

    async def read(self, node: str) -> NodeRecord | None:
        """Read the record of a node; None: it has none.

        Raises:
            ClusterError: there is no answer, or what it says cannot be read.
        """
        lease = await self._leases.read(_lease_name(node))
        return None if lease is None else _record(lease)

    async def write(
        self, node: str, shares: Iterable[RecordedShare], *, version: str | None, writer: str
    ) -> str | None:
        """Write the record of a node; return its new version; None: another one was written.

        Args:
            node: the node's name.
            shares: all of the node's.
            version: the one that is replaced; None: the record is created.
            writer: this process.

        Raises:
            ClusterError: there is no answer; the record may be written, or may still be written.
        """
        text = json.dumps([asdict(share) for share in shares], separators=(",", ":"))
        lease = await self._leases.write(
            _lease_name(node),
            version=version,
            holder=writer,
            duration_s=1,
            annotations={ANNOTATION_SHARES: text},
        )
        return None if lease is None else lease.version


def _lease_name(node: str) -> str:
    name = f"{_PREFIX}{node}"
    if len(name) <= _NAME_MAX:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()
    return f"{_PREFIX}{digest}"


def _record(lease: StoredLease) -> NodeRecord:
    text = lease.annotations.get(ANNOTATION_SHARES, "[]")
    try:
        shares = tuple(RecordedShare(**fields) for fields in json.loads(text))
    except (ValueError, TypeError) as error:
        raise ClusterError(
            f"Lease {lease.name}: annotation {ANNOTATION_SHARES} cannot be read ({error}); delete "
            "the Lease while no replica of the extender runs"
        ) from None
    return NodeRecord(lease.version, shares)
