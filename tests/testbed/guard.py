"""Ends the test bed's programs when the process that started them has died, however it died.

Run by `processes.py` as a program of its own. It reads process ids from standard input, one a
line; when that pipe closes, its owner has ended (a kill -9 included), and whatever of those
processes still lives is asked to end, then killed. Linux's "signal at the parent's death" would
be shorter, but it fires when the starting *thread* ends, which a thread pool does at any time.
A pidfd stays with its process: a number that the kernel has given to another is never hit.
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
    deadline = time.monotonic() + within_s
    alive = watched
    while alive and (left_s := deadline - time.monotonic()) > 0:
        ended = select.select(alive, [], [], left_s)[0]
        alive = [pidfd for pidfd in alive if pidfd not in ended]
    return not alive


def main(grace_s: float) -> None:
    """Watch until standard input closes, then end what is left within `grace_s` seconds."""
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
