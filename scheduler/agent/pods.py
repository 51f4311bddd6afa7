"""The pods of this node: what they hold and request, and which a process on a GPU belongs to.

The kubelet puts every container into a cgroup below its pod's, and the pod's has the UID in its
name; how it is spelt differs by cgroup driver and version:

    cgroupfs  /kubepods/burstable/pod<uid>/<container>
    systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-…

with the dashes of the UID as underscores in the latter. A static pod's UID is 32 digits without
dashes. From a cgroup namespace of one's own the upper part may be missing (``/../..``); the pod's
own name is never above it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from scheduler.cluster.api import Raw
from scheduler.model.pod import Grant, PodError, grant_of, has_ended, requested_gpu_percent

log = structlog.get_logger(__name__)

_POD = re.compile(
    r"[/-]pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)",
    re.ASCII | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class GrantedPod:
    """A pod of this node that holds a share of a GPU."""

    namespace: str
    name: str
    gpu_uuid: str
    memory_mib: int  # the limit of each of its processes


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What Kubernetes' own accounting counts a live pod of this node with, granted or not."""

    gpu_uuid: str  # the GPU that it was granted; empty: none
    percent: int  # of a GPU; its request, which may be more than was granted


class NodePods:
    """The live pods of this node; the handler that is told of them.

    Attributes:
        granted: those that hold shares, by UID.
        known: whether all pods were heard of.
    """

    def __init__(self) -> None:
        self.granted: dict[str, GrantedPod] = {}
        self.known = False
        self._requests: dict[str, PodRequest] = {}

    def requests(self) -> tuple[PodRequest, ...]:
        """What they request, of those that request a share."""
        return tuple(self._requests.values())

    def replace(self, items: Iterable[Raw]) -> None:
        """All pods of the node."""
        self.granted.clear()
        self._requests.clear()
        for item in items:
            self.upsert(item)
        self.known = True

    def upsert(self, item: Raw) -> None:
        """A pod came or changed."""
        self.delete(item)
        if has_ended(item):
            return
        metadata = item["metadata"]
        grant = _grant(item)
        if percent := requested_gpu_percent(item):
            self._requests[metadata["uid"]] = PodRequest(grant.gpu_uuid if grant else "", percent)
        if grant is not None:
            self.granted[metadata["uid"]] = GrantedPod(
                metadata.get("namespace") or "default",
                metadata["name"],
                grant.gpu_uuid,
                grant.memory_mib,
            )

    def delete(self, item: Raw) -> None:
        """A pod is gone."""
        uid = item["metadata"]["uid"]
        self.granted.pop(uid, None)
        self._requests.pop(uid, None)


def _grant(pod: Raw) -> Grant | None:
    try:
        return grant_of(pod)
    except PodError as error:
        log.warning("grant cannot be read", pod=pod["metadata"]["name"], problem=str(error))
        return None


def pod_uid(cgroups: str) -> str | None:
    """The UID of the pod that a process is in, from the text of ``/proc/<pid>/cgroup``.

    The innermost one counts, for a node may itself be a container in a pod.
    """
    found = [match["uid"] for match in _POD.finditer(cgroups)]
    return found[-1].replace("_", "-") if found else None


def pod_uid_of_process(pid: int, *, proc: Path = Path("/proc")) -> str | None:
    """The same for a process of this machine; None for one that has ended, or is in no pod.

    Process ids are the host's: this process must share its PID namespace (``hostPID: true``).
    """
    try:
        return pod_uid((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
