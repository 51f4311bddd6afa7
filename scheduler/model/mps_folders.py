"""Folders of a GPU's MPS daemon: on the host, and in the containers of its clients.

Below the root, each GPU has a folder with its UUID. A client sees the folders of its own GPU alone,
at paths that are the same for all GPUs: a container's environment is fixed before its GPU is known.
"""

from typing import Final

PIPE: Final = "pipe"
"""The daemon's sockets (CUDA_MPS_PIPE_DIRECTORY), below a GPU's folder."""
SHM: Final = "shm"
"""Shared memory of the daemon and its clients, below a GPU's folder."""


def client_folders(mps_root: str) -> dict[str, str]:
    """Map each folder of a GPU that a client has to its path in the client's container."""
    return {PIPE: f"{mps_root}/{PIPE}", SHM: "/dev/shm"}  # noqa: S108 - not a temporary file
