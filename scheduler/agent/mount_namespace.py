"""Starts a program that dies with its parent, and whose /dev/shm is a folder of ours.

    python -I -S confined.py FOLDER PROGRAM ARGUMENT…

An MPS server shares memory with its clients by files in /dev/shm. The clients' /dev/shm is their
GPU's folder, so the daemon's must be too: here in a mount namespace of its own, for each daemon has
another folder. An empty FOLDER leaves /dev/shm alone. A daemon that outlived `esg mps` would keep
the GPU from the next one, so the kernel ends it (SIGTERM) when its parent ends.

Run as a script, before anything is imported: it is what the process was before the exec. (`os` has
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
FAILED = 125  # the exit status of `env` and its kin when they cannot start the program


def main(arguments: list[str]) -> int:
    """Become the program; returns an exit status where that cannot be done."""
    folder, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)

    def call(what: str, status: int) -> None:
        if status != 0:
            reason = os.strerror(ctypes.get_errno())
            raise OSError(f"{what}: {reason}")

    try:
        parent = os.getppid()
        call("prctl", libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM))
        if os.getppid() != parent:
            return FAILED
        if folder:
            call("a mount namespace of its own", libc.unshare(_CLONE_NEWNS))
            # Nothing of what follows may be seen outside.
            call("mount", libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
            call(f"{folder} as /dev/shm", libc.mount(folder.encode(), _SHM, None, _MS_BIND, None))
        os.execvp(command[0], command)  # noqa: S606 - no shell
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error}\n")
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
