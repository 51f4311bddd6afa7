"""Which pod a process on a GPU belongs to.

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
from scheduler.model.pod import PodError, grant_of, has_ended

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


class GrantedPods:
    """The pods of this node that hold shares, by UID; the handler that is told of the pods."""

    def __init__(self) -> None:
        self.by_uid: dict[str, GrantedPod] = {}

    def replace(self, items: Iterable[Raw]) -> None:
        """All pods of the node."""
        self.by_uid.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: Raw) -> None:
        """A pod came or changed."""
        metadata = item["metadata"]
        self.by_uid.pop(metadata["uid"], None)
        if has_ended(item):
            return
        try:
            grant = grant_of(item)
        except PodError as error:
            log.warning("grant cannot be read", pod=metadata["name"], problem=str(error))
            return
        if grant is not None:
            self.by_uid[metadata["uid"]] = GrantedPod(
                metadata.get("namespace") or "default",
                metadata["name"],
                grant.gpu_uuid,
                grant.memory_mib,
            )

    def delete(self, item: Raw) -> None:
        """A pod is gone."""
        self.by_uid.pop(item["metadata"]["uid"], None)


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
