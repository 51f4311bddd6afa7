"""A client of the fake MPS daemon: connects, prints its effective limits, and waits.

    python -I -S mps_client.py PIPE_DIRECTORY

Its own limits are in its environment, as for a CUDA program.
"""

import os
import signal
import socket
import sys


def main():
    percent = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "0")
    memory = os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=0M")
    mib = memory.removeprefix("0=").removesuffix("M")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{sys.argv[1]}/control")
        connection.sendall(f"connect {percent} {mib}\n".encode())
        connection.shutdown(socket.SHUT_WR)
        sys.stdout.write(connection.makefile().read())
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
