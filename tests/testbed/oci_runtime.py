"""runc for containers on a machine whose root lacks a capability.

A privileged container requests every capability, and runc fails if one of them is not in the
machine's bounding set. `docker.py` makes this the runtime of its daemon. It removes the missing
capabilities from the specification, and negative OOM scores, which need CAP_SYS_RESOURCE.

    python -m tests.testbed.oci_runtime ARGUMENTS OF RUNC
"""

import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUNTIME = "runc"
_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE"
    " NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO"
    " SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME"
    " SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG"
    " WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
)
CAPABILITIES = tuple(f"CAP_{name}" for name in _NAMES.split())
"""Names in the order of their bits (capabilities(7))."""


def bounding_set(status: Path = Path("/proc/self/status")) -> frozenset[str]:
    """Return the capabilities that processes of this machine can have."""
    lines = status.read_text(encoding="ascii").splitlines()
    [mask] = [int(line.split()[1], 16) for line in lines if line.startswith("CapBnd:")]
    return frozenset(name for bit, name in enumerate(CAPABILITIES) if mask >> bit & 1)


def limit_process(process: dict[str, Any], available: frozenset[str]) -> None:
    """Remove unavailable capabilities and a negative OOM score from a process, in place."""
    for kind, names in process.get("capabilities", {}).items():
        process["capabilities"][kind] = [name for name in names if name in available]
    if process.get("oomScoreAdj", 0) < 0:
        process["oomScoreAdj"] = 0


def limit_specification(arguments: Sequence[str], available: frozenset[str]) -> None:
    """Rewrite the file that runc will read: a bundle's for `create`, a process for `exec`."""
    options = dict(itertools.pairwise(arguments))
    if "--bundle" in options:
        path = Path(options["--bundle"]) / "config.json"
        specification = json.loads(path.read_text(encoding="utf-8"))
        limit_process(specification["process"], available)
    elif "--process" in options:
        path = Path(options["--process"])
        specification = json.loads(path.read_text(encoding="utf-8"))
        limit_process(specification, available)
    else:
        return
    path.write_text(json.dumps(specification), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Limit the specification, and become runc."""
    limit_specification(arguments, bounding_set())
    os.execvp(RUNTIME, [RUNTIME, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
