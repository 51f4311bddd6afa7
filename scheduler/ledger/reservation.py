"""A reservation: one pod's part of a node's vCPUs and of one GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.model.grant import Grant
from scheduler.model.names import POOL_MEMBER
from scheduler.model.pools import PoolName


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity that one pod reserves; a pod without a function only vCPUs (``gpu_uuid`` None).

    Attributes:
        gpu_percent: percent of the GPU that nobody else has; 0 for a member of a pool.
        memory_mib: memory of the pod's process on the GPU; 0 for a holder, which has none.
        is_daemon: true if the pod belongs to its node, and not to a function.
        pool: role in its pool; empty: none.
        group: group of gateways whose pool it is in; empty: none, or in no pool.
        is_ending: true if the pod is deleted, or has vanished; its slice takes no member.
        slice_percent: percent that a batch of a member takes of its slice.
        slice_cpu_milli: vCPUs that a batch of a member takes of its slice, in thousandths.
        grace_s: longest time that containers of the pod may outlive its object, in seconds.
        assumed_at_s: time of the assumption on a monotonic clock; None: seen bound in the cluster.
        pod_version: version of the pod in its Binding, or in which it was seen bound first; 0:
            unknown. While it is assumed and this is known, no Binding gives the pod what it
            reserves once the pod has another version.
        labels: labels of the pod, once the cluster has shown it bound.
    """

    uid: str
    namespace: str
    name: str
    node: str
    cpu_milli: int
    gpu_uuid: str | None = None
    gpu_percent: int = 0
    memory_mib: int = 0
    batch: int = 0
    function: str = ""
    priority: int = 0
    is_daemon: bool = False
    pool: str = ""
    group: str = ""
    is_ending: bool = False
    slice_percent: int = 0
    slice_cpu_milli: int = 0
    grace_s: float = 0.0
    assumed_at_s: float | None = None
    pod_version: int = field(default=0, compare=False)
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def confirmed(self) -> bool:
        """Return true if the cluster has shown the pod bound; before, its Binding is under way."""
        return self.assumed_at_s is None

    @property
    def pool_name(self) -> PoolName:
        """Return the pool of a pod that is in one."""
        return PoolName(self.namespace, self.group)

    def as_confirmed(self) -> "Reservation":
        """Return the same reservation, seen in the cluster."""
        return self if self.confirmed else replace(self, assumed_at_s=None)

    def with_grant(self, grant: Grant) -> "Reservation":
        """Return the reservation with the part of a GPU that a grant gives the pod."""
        is_member = grant.pool == POOL_MEMBER
        return replace(
            self,
            gpu_uuid=grant.gpu_uuid,
            gpu_percent=0 if is_member else grant.gpu_percent,
            memory_mib=grant.memory_mib,
            batch=grant.batch,
            pool=grant.pool,
            group=grant.group,
            slice_percent=grant.gpu_percent if is_member else 0,
            slice_cpu_milli=1000 * grant.cpu if is_member else 0,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what a person or a replay needs to know, for the snapshot."""
        return {
            "uid": self.uid,
            "namespace": self.namespace,
            "name": self.name,
            "gpu_percent": self.gpu_percent,
            "memory_mib": self.memory_mib,
            "cpu_milli": self.cpu_milli,
            "batch": self.batch,
            "function": self.function,
            "priority": self.priority,
            "is_daemon": self.is_daemon,
            "pool": self.pool,
            "group": self.group,
            "is_ending": self.is_ending,
            "slice_percent": self.slice_percent,
            "slice_cpu_milli": self.slice_cpu_milli,
            "state": "confirmed" if self.confirmed else "assumed",
        }
