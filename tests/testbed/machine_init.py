"""First process of a `Machine`: it reaps orphaned processes and waits for its end.

`machine.py` runs it as a program of its own, in new namespaces. When it ends, the kernel ends all
processes of the machine, so none outlives a test run.
"""

import signal
import sys


def main() -> None:
    """Print that the machine is up, then wait until a signal ends the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    sys.stdout.write("up\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
