"""The pods of this node: their grants and requests, and the pod of a process on a GPU.

The kubelet puts every container into a cgroup below its pod's, whose name contains the pod's UID;
the format depends on cgroup driver and version:

    cgroupfs  /kubepods/burstable/pod<uid>/<container>
    systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-…

with underscores instead of the UID's dashes in the latter. A static pod's UID is 32 digits without
dashes. In a private cgroup namespace the upper part may be missing (``/../..``), but never the
pod's own name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from scheduler.cluster.api import Raw
from scheduler.model.names import LABEL_FUNCTION, LABEL_STAGE, LABEL_WORKFLOW
from scheduler.model.pod import (
    Grant,
    PodError,
    grant_of,
    has_ended,
    requested_gpu_percent,
    requests_whole_gpu,
)

log = structlog.get_logger(__name__)

_POD = re.compile(
    r"[/-]pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)",
    re.ASCII | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class GrantedPod:
    """A pod of this node with a share of a GPU."""

    uid: str
    namespace: str
    name: str
    gpu_uuid: str
    gpu_percent: int
    memory_mib: int  # the limit of each process
    workflow: str = ""  # of a function alone: none
    stage: str = ""  # or the function


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Request of a live pod of this node in Kubernetes' own accounting, granted or not."""

    gpu_uuid: str  # its granted GPU; empty: none
    percent: int  # of a GPU; its request, which may exceed its grant


class NodePods:
    """The live pods of this node; also their handler.

    Attributes:
        granted: pods with shares, by UID.
        whole_gpu: names of pods that request whole GPUs of a device plugin, by UID.
        known: all pods have been reported.

    Args:
        changed: called after each change.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self.granted: dict[str, GrantedPod] = {}
        self.whole_gpu: dict[str, str] = {}
        self.known = False
        self._requests: dict[str, PodRequest] = {}

    def requests(self) -> tuple[PodRequest, ...]:
        """List the requests of pods that request a share."""
        return tuple(self._requests.values())

    def replace(self, items: Iterable[Raw]) -> None:
        """Set all pods of the node."""
        self.granted.clear()
        self.whole_gpu.clear()
        self._requests.clear()
        for item in items:
            self._add(item)
        self.known = True
        self._changed()

    def upsert(self, item: Raw) -> None:
        """Add or update a pod."""
        self._remove(item)
        self._add(item)
        self._changed()

    def delete(self, item: Raw) -> None:
        """Delete a pod."""
        self._remove(item)
        self._changed()

    def _add(self, item: Raw) -> None:
        if has_ended(item):
            return
        metadata = item["metadata"]
        if requests_whole_gpu(item):
            self.whole_gpu[metadata["uid"]] = f"{metadata.get('namespace')}/{metadata['name']}"
        grant = _grant(item)
        if percent := requested_gpu_percent(item):
            self._requests[metadata["uid"]] = PodRequest(grant.gpu_uuid if grant else "", percent)
        if grant is not None:
            self.granted[metadata["uid"]] = GrantedPod(
                metadata["uid"],
                metadata.get("namespace") or "default",
                metadata["name"],
                grant.gpu_uuid,
                grant.gpu_percent,
                grant.memory_mib,
                *_stage(metadata.get("labels") or {}),
            )

    def _remove(self, item: Raw) -> None:
        uid = item["metadata"]["uid"]
        self.granted.pop(uid, None)
        self.whole_gpu.pop(uid, None)
        self._requests.pop(uid, None)


def _stage(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return workflow and stage; a function without a workflow is its own stage."""
    stage = labels.get(LABEL_STAGE) or labels.get(LABEL_FUNCTION) or ""
    return labels.get(LABEL_WORKFLOW) or "", stage


def _grant(pod: Raw) -> Grant | None:
    try:
        return grant_of(pod)
    except PodError as error:
        log.warning("grant cannot be read", pod=pod["metadata"]["name"], problem=str(error))
        return None


def pod_uid(cgroups: str) -> str | None:
    """Extract the pod's UID from the text of a process's ``/proc/<pid>/cgroup``.

    The innermost one counts, because a node may itself be a container in a pod.
    """
    uids = [match["uid"] for match in _POD.finditer(cgroups)]
    return uids[-1].replace("_", "-") if uids else None


def pod_uid_of_process(pid: int, *, proc: Path = Path("/proc")) -> str | None:
    """Return the UID of a local process's pod; None if the process has ended, or has no pod.

    Process ids are the host's: this process must share its PID namespace (``hostPID: true``).
    """
    try:
        return pod_uid((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
