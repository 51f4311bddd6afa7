"""GPU memory of granted pods by NVML, compared with their grants.

MPS enforces a limit for each process, not for a pod, and only as far as `grants` says. But a pod's
share of the GPU's memory is allocated once: what it uses above that is missing elsewhere.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from scheduler.agent.gpus.inventory import AssessedGpu
from scheduler.agent.pods.granted_pod import GrantedPod

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class MemoryExcess:
    """A pod that uses more memory of its GPU than granted."""

    pod: GrantedPod
    used_bytes: int
    since_s: float

    @property
    def excess_bytes(self) -> int:
        """Memory above the grant."""
        return self.used_bytes - self.pod.memory_mib * _MIB


def memory_by_pod(
    gpus: Iterable[AssessedGpu],
    pods: Mapping[str, GrantedPod],
    uid_of: Callable[[int], str | None],
) -> Mapping[tuple[str, str], int]:
    """Sum the memory of processes, bytes, by UID of a granted pod and UUID of a GPU.

    A GPU that cannot be read adds nothing: what its processes use now is not known.
    """
    used_bytes: defaultdict[tuple[str, str], int] = defaultdict(int)
    for assessed in gpus:
        if assessed.is_outdated:
            continue
        for process in assessed.device.processes:
            uid = uid_of(process.pid)
            if uid is not None and uid in pods and process.memory_bytes is not None:
                used_bytes[uid, assessed.gpu.uuid] += process.memory_bytes
    return used_bytes


class MemoryExcesses:
    """Pods that currently exceed their memory.

    Args:
        tolerance_ratio: part of a grant by which a pod may exceed it: NVML and MPS do not count the
            same.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, *, tolerance_ratio: float, clock: Callable[[], float]) -> None:
        self.current: dict[str, MemoryExcess] = {}
        self._tolerance_ratio = tolerance_ratio
        self._clock = clock

    def update(
        self, used_bytes: Mapping[tuple[str, str], int], pods: Mapping[str, GrantedPod]
    ) -> list[MemoryExcess]:
        """Set the memory by pod and GPU; return the pods that have begun to exceed theirs."""
        previous, self.current = self.current, {}
        for uid, pod in pods.items():
            used = used_bytes.get((uid, pod.gpu_uuid), 0)
            if used > pod.memory_mib * _MIB * (1 + self._tolerance_ratio):
                since_s = previous[uid].since_s if uid in previous else self._clock()
                self.current[uid] = MemoryExcess(pod, used, since_s)
        return [excess for uid, excess in self.current.items() if uid not in previous]

    def lasting(self, duration_s: float) -> list[MemoryExcess]:
        """List the pods that have exceeded their memory for so long."""
        now_s = self._clock()
        return [e for e in self.current.values() if now_s - e.since_s >= duration_s]
