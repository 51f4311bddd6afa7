"""Start a program that ends with its parent, with its own folder as /dev/shm.

    python -I -S mount_namespace.py FOLDER PROGRAM ARGUMENT…

An MPS server shares memory with its clients by files in /dev/shm. The clients' /dev/shm is their
GPU's folder, so the daemon's must be the same: in its own mount namespace, because each daemon has
another folder. An empty FOLDER leaves /dev/shm unchanged. A daemon that survived `esg mps` would
block the GPU for the next one, so the kernel ends it (SIGTERM) when its parent ends.

It runs as a script, before any import: the process keeps its own state until the exec. (`os` has
``unshare`` from Python 3.12 on, and ``mount`` in no version.)
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_SHM = b"/dev/shm"
FAILED = 125  # the exit status of `env` and similar tools when they cannot start the program


def main(arguments: list[str]) -> int:
    """Become the program; return an exit status if that fails."""
    folder, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)

    def call(operation: str, status: int) -> None:
        if status != 0:
            reason = os.strerror(ctypes.get_errno())
            raise OSError(f"{operation}: {reason}")

    try:
        parent = os.getppid()
        call("prctl", libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM))
        if os.getppid() != parent:
            return FAILED
        if folder:
            call("unshare the mount namespace", libc.unshare(_CLONE_NEWNS))
            # Keep the following mounts invisible outside.
            call("mount / as private", libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
            call(f"mount {folder}", libc.mount(folder.encode(), _SHM, None, _MS_BIND, None))
        os.execvp(command[0], command)  # noqa: S606 - no shell
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error}\n")
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
