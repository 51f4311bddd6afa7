"""Model and used memory of the GPU that a measured server has, by NVML on this machine."""

from collections.abc import Collection
from math import ceil

from scheduler.agent.gpus.nvml import NvmlError, open_nvml
from scheduler.agent.gpus.reading import DeviceReading

_MIB = 2**20


class GpuMemoryError(Exception):
    """The memory of a server is unknown; the text says why and what to do."""


def read_gpu(index: int) -> DeviceReading:
    """Read the GPU with that index.

    Raises:
        GpuMemoryError: there is no such GPU, or it cannot be read.
    """
    try:
        with open_nvml(listen=False) as session:
            reading = session.read()
    except NvmlError as error:
        raise GpuMemoryError(f"{error}; without NVML give --gpu-model and --memory-mib") from None
    for device in reading.devices:
        if device.index == index:
            return device
    reason = reading.unreadable.get(index, f"there are {len(reading.devices)} GPUs")
    raise GpuMemoryError(f"GPU {index} cannot be read: {reason}; give --gpu INDEX")


def server_memory_mib(device: DeviceReading, pids: Collection[int]) -> int:
    """Return the memory of a server's processes on the GPU, in MiB, rounded up.

    Frameworks keep memory that they once needed, so read it after the largest batch so far.

    Args:
        device: reading of the GPU.
        pids: processes of the server; empty: the only process on the GPU.

    Raises:
        GpuMemoryError: the processes are not on the GPU, or NVML does not know their memory.
    """
    known = {process.pid: process.memory_bytes for process in device.processes}
    if not pids and len(known) != 1:
        raise GpuMemoryError(
            f"{len(known)} processes are on GPU {device.index}; name those of the server with "
            "--pid, or give --memory-mib"
        )
    used = [known.get(pid) for pid in pids or known]
    used_bytes = sum(amount for amount in used if amount is not None)
    if not used_bytes or None in used:
        listed = ", ".join(map(str, pids or known))
        raise GpuMemoryError(
            f"NVML reports no memory of process {listed} on GPU {device.index}; give --memory-mib"
        )
    return ceil(used_bytes / _MIB)
