"""A reservation: one pod's hold on a node's vCPUs and on a share of one GPU."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one pod holds. A pod that is none of ours holds vCPUs alone (``gpu_uuid`` None)."""

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
    assumed_at: float | None = None  # seconds of a monotonic clock; None: seen bound in the cluster

    @property
    def confirmed(self) -> bool:
        """Whether the cluster has shown the pod bound; until then its Binding is under way."""
        return self.assumed_at is None

    def as_confirmed(self) -> "Reservation":
        """The same hold, seen in the cluster."""
        return replace(self, assumed_at=None)

    def as_json(self) -> dict[str, Any]:
        """For the snapshot: what a person or a replay needs to know of it."""
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
            "state": "confirmed" if self.confirmed else "assumed",
        }
