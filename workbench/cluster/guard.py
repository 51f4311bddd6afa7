"""A guard that ends programs after any death of the process that started them.

It runs as a program of its own. It reads process ids from standard input, one a line. When that
pipe closes, its owner has ended (a kill -9 included); the guard sends SIGTERM to the remaining
processes, then SIGKILL. Linux's parent-death signal would be shorter, but the kernel sends it when
the starting *thread* ends, which a thread pool does at any time. A pidfd belongs to its process:
the guard never signals another process that has the same number.
"""

import os
import select
import signal
import subprocess
import sys
import time


class Guard:
    """A child process that ends watched processes if this process ends without stopping them.

    Args:
        grace_s: time between SIGTERM and SIGKILL, in seconds.
    """

    def __init__(self, *, grace_s: float = 5.0) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, "-I", "-S", __file__, str(grace_s)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._pipe = self._process.stdin

    def watch(self, pid: int) -> None:
        """End the process with this id, too, if the current one ends."""
        self._pipe.write(f"{pid}\n")
        self._pipe.flush()

    def close(self) -> None:
        """End the watched processes that still run, then the guard itself."""
        self._pipe.close()
        self._process.wait()


def _signal_all(watched: list[int], number: signal.Signals) -> None:
    for pidfd in watched:
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            continue


def _have_ended(watched: list[int], *, within_s: float) -> bool:
    deadline_s = time.monotonic() + within_s
    alive = watched
    while alive and (remaining_s := deadline_s - time.monotonic()) > 0:
        ended = select.select(alive, [], [], remaining_s)[0]
        alive = [pidfd for pidfd in alive if pidfd not in ended]
    return not alive


def main(grace_s: float) -> None:
    """Read until standard input closes, then end the processes within `grace_s` seconds."""
    watched = []
    for line in sys.stdin:
        try:
            watched.append(os.pidfd_open(int(line)))
        except ProcessLookupError:
            continue
    _signal_all(watched, signal.SIGTERM)
    if not _have_ended(watched, within_s=grace_s):
        _signal_all(watched, signal.SIGKILL)


if __name__ == "__main__":
    main(float(sys.argv[1]))
