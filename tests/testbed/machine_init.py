"""The first process of a test bed's machine: it reaps what others leave, and waits for its end.

Run by `machine.py` as a program of its own, in fresh namespaces. Whatever runs in the machine ends
with it, by the kernel's hand; so nothing outlives a test run, however that ends.
"""

import signal
import sys


def main() -> None:
    """Say that the machine is there, then wait for ever."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    sys.stdout.write("up\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
