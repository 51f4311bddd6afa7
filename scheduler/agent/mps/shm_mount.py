"""Mount a tmpfs of a fixed size on the host, at a GPU's folder shm; as a script: do it.

    python -I -S shm_mount.py NAMESPACE FOLDER SIZE_MIB

A client may fill its /dev/shm. That folder is on the host's /run, which the kubelet and the
container runtime need, too. A tmpfs of its own limits what the clients of one GPU can take. It must
be mounted in the host's mount namespace: function pods get the folder from there.

The script joins that namespace, so it is a process of its own. (`os` has ``setns`` from Python 3.12
on, and ``mount`` in no version.)
"""

import asyncio
import ctypes
import os
import sys
from pathlib import Path

HOST = "/proc/1/ns/mnt"
_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 0x2, 0x4, 0x8, 0x20
_MNT_DETACH = 0x2


async def mount_shm(folder: Path, size_mib: int, *, namespace: str = HOST) -> None:
    """Mount a tmpfs at the folder, or change its size; 0: unmount it, if it is mounted.

    Raises:
        OSError: it is not possible; the message says why.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", __file__, namespace, str(folder), str(size_mib)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, text = await process.communicate()
    if process.returncode:
        raise OSError(f"tmpfs at {folder}: {text.decode('utf-8', 'replace').strip()}")


def main(arguments: list[str]) -> int:
    """Mount, resize or unmount; return an exit status."""
    namespace, folder, size_mib = arguments
    libc = ctypes.CDLL(None, use_errno=True)

    def call(operation: str, status: int) -> None:
        if status != 0:
            raise OSError(f"{operation}: {os.strerror(ctypes.get_errno())}")

    try:
        descriptor = os.open(namespace, os.O_RDONLY)
        call("join the host's mount namespace", libc.setns(descriptor, _CLONE_NEWNS))
        is_mounted = os.path.ismount(folder)
        if int(size_mib):
            flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | (_MS_REMOUNT if is_mounted else 0)
            options = f"size={size_mib}m,mode=1777".encode()
            call("mount", libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, options))
        elif is_mounted:
            call("unmount", libc.umount2(folder.encode(), _MNT_DETACH))
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
