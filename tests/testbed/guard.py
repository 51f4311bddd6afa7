"""A guard that ends the test bed's programs after any death of the process that started them.

`processes.py` runs it as a program of its own. It reads process ids from standard input, one a
line. When that pipe closes, its owner has ended (a kill -9 included); the guard sends SIGTERM to
the remaining processes, then SIGKILL. Linux's parent-death signal would be shorter, but the kernel
sends it when the starting *thread* ends, which a thread pool does at any time. A pidfd belongs to
its process: the guard never signals another process that has the same number.
"""

import os
import select
import signal
import sys
import time


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
