"""The pod of a process.

The kubelet puts every container into a cgroup below its pod's, whose name contains the pod's UID;
the format depends on cgroup driver and version:

    cgroupfs  /kubepods/burstable/pod<uid>/<container>
    systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-…

with underscores instead of the UID's dashes in the latter. A static pod's UID is 32 digits without
dashes. In a private cgroup namespace the upper part may be missing (``/../..``), but never the
pod's own name.
"""

import re
from pathlib import Path

_POD = re.compile(
    r"[/-]pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)",
    re.ASCII | re.MULTILINE,
)


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
