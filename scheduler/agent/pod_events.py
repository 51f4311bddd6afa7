"""Events on the node's pods: processes that were ended, and memory above the grant."""

from collections.abc import Callable, Iterable, Mapping

import structlog

from scheduler.agent.mps.clients import ClientReport
from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.memory_use import MemoryExcess
from scheduler.cluster.events import EventType, Reference

log = structlog.get_logger(__name__)

_MIB = 2**20


class PodEvents:
    """Reports on pods; stores the last report of each GPU.

    Args:
        record: function that records an Event on a pod, with type, reason and message.
    """

    def __init__(self, record: Callable[[Reference, EventType, str, str], None]) -> None:
        self._record = record
        self._ended: dict[str, Mapping[str, int]] = {}

    def report_ended(self, gpu: str, report: ClientReport, pods: Mapping[str, GrantedPod]) -> None:
        """Report the processes of a GPU that were ended since the last time.

        The first report of a GPU only sets what is known: an earlier agent has reported it.
        """
        previous, self._ended[gpu] = self._ended.get(gpu), report.ended
        if previous is None:
            return
        for uid, count in report.ended.items():
            new = count - previous.get(uid, 0)
            if new > 0 and (pod := pods.get(uid)):
                self._write(
                    pod,
                    "MPSClientsEnded",
                    f"the MPS server of GPU {gpu} has ended: {new} of the pod's processes could "
                    "not use the GPU any more and were ended, so that they start again",
                )

    def report_memory(self, excesses: Iterable[MemoryExcess]) -> None:
        """Report pods that have begun to use more memory than granted."""
        for excess in excesses:
            pod = excess.pod
            self._write(
                pod,
                "GPUMemoryExceeded",
                f"the pod's processes use {excess.used_bytes // _MIB} MiB of GPU {pod.gpu_uuid}, "
                f"and {pod.memory_mib} MiB are granted. Each process has this limit: run one, "
                "or request a larger configuration",
            )

    def _write(self, pod: GrantedPod, reason: str, message: str) -> None:
        log.warning(reason, namespace=pod.namespace, pod=pod.name, problem=message)
        reference = Reference.pod(pod.namespace, pod.name, pod.uid)
        self._record(reference, "Warning", reason, message)
