"""One GPU as NVML tells of it.

Source: NVIDIA's NVML API reference. What a GPU is too old or too small to know, NVML refuses to
tell; only what it must tell of every GPU is missed.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pynvml
from pynvml import NVMLError

from scheduler.agent.compute_modes import ComputeMode, ComputeModes
from scheduler.agent.health import shareable
from scheduler.agent.reading import DeviceReading, Process

# With these NVML says that it has lost the GPU, or its driver, and not that it does not know.
_FATAL = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
_OLDER = {  # with these, that it is too old for a call's newer version
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
}
_UUID = re.compile(r"[A-Za-z0-9-]{1,128}", re.ASCII)  # it becomes the name of a folder

# CUDA cores of one multiprocessor, by compute capability, from NVIDIA's CUDA C++ programming guide.
# NVML counts cores; multiprocessors it counts for MIG devices alone. From 8.6 on there are 128.
_CORES = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
_CORES_SINCE_8_6 = 128


class DeviceReader:
    """Reads GPUs, and remembers up to when it has seen the utilisation of their processes.

    Args:
        modes: the compute modes to set, on GPUs that MPS can share.
    """

    def __init__(self, modes: ComputeModes) -> None:
        self._modes = modes
        self._seen_us: defaultdict[str, int] = defaultdict(int)

    def read(self, index: int, handle: Any) -> DeviceReading:
        """All that is known of the GPU.

        Raises:
            NVMLError: the GPU cannot be read.
            ValueError: what NVML tells makes no sense.
        """
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        (memory_bytes, used_bytes), model = _memory(handle), pynvml.nvmlDeviceGetName(handle)
        if _UUID.fullmatch(uuid) is None or memory_bytes < 2**20 or not model:
            raise ValueError(
                f"NVML tells no sound UUID, name or memory of it ({uuid!r}, {model!r})"
            )
        capability = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        mig = _told(pynvml.nvmlDeviceGetMigMode, handle)
        utilization = _told(pynvml.nvmlDeviceGetUtilizationRates, handle)
        rows = _told(pynvml.nvmlDeviceGetRemappedRows, handle)  # corrected, not, pending, failed
        retiring = _told(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        due = "row remapping" if rows and rows[2] else "page retirement" if retiring else ""
        device = DeviceReading(
            index=index,
            uuid=uuid,
            model=model,
            memory_mib=memory_bytes // 2**20,
            multiprocessors=_multiprocessors(handle, capability),
            compute_capability=capability,
            mig=bool(mig and mig[0]),
            ecc_uncorrected=_told(
                pynvml.nvmlDeviceGetTotalEccErrors,
                handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            ),
            reset_due=due,
            memory_failed=bool(rows and rows[3]),
            memory_used_bytes=used_bytes,
            utilization_ratio=utilization and utilization.gpu / 100,
            temperature_celsius=_told(
                pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            processes=tuple(self._processes(uuid, handle)),
        )
        # Only of GPUs that are shared: others are not ours, and one with MIG has no mode to set.
        mode, problem = self._mode(handle, self._modes.wanted(uuid) if shareable(device) else None)
        exclusive = mode == ComputeMode.EXCLUSIVE_PROCESS
        return replace(device, exclusive=exclusive, mode_problem=problem)

    def _mode(self, handle: Any, wanted: ComputeMode | None) -> tuple[int | None, str]:
        """The GPU's compute mode, made what it is to be, and why that could not be done."""
        mode = _told(pynvml.nvmlDeviceGetComputeMode, handle)
        if wanted is None or mode == wanted:
            return mode, ""
        try:
            pynvml.nvmlDeviceSetComputeMode(handle, wanted)
        except NVMLError as error:
            return mode, f"compute mode {wanted.name} cannot be set: {error}"
        return wanted, ""

    def _processes(self, uuid: str, handle: Any) -> Iterable[Process]:
        memory: dict[int, int | None] = {}
        for ask in (
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        ):
            for process in _told(ask, handle) or ():
                told = (memory.get(process.pid), process.usedGpuMemory)
                memory[process.pid] = max((m for m in told if m is not None), default=None)
        shares = defaultdict(list)
        since_us = self._seen_us[uuid]
        for sample in _told(pynvml.nvmlDeviceGetProcessUtilization, handle, since_us) or ():
            self._seen_us[uuid] = max(self._seen_us[uuid], sample.timeStamp)
            shares[sample.pid].append(min(sample.smUtil, 100) / 100)
        return (
            Process(pid, used, sum(shares[pid]) / len(shares[pid]) if shares[pid] else None)
            for pid, used in memory.items()
        )


def _told(ask: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML says, or None where it does not say that of this GPU.

    Raises:
        NVMLError: the GPU, or NVML as a whole, is lost.
    """
    try:
        return ask(*arguments)
    except NVMLError as error:
        if error.value in _FATAL:
            raise
        return None


def _memory(handle: Any) -> tuple[int, int]:
    """What processes can have of its memory, and what they have, in bytes.

    What the driver keeps for itself is in neither, if it says how much that is.

    Raises:
        NVMLError: the GPU cannot be read.
    """
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except NVMLError as error:
        # With any other error the old version's answer would only be another amount for a while.
        if error.value not in _OLDER:
            raise
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return memory.total, memory.total - memory.free
    usable = max(0, memory.total - memory.reserved)
    # Whether `used` has `reserved` in it, NVIDIA's references say one way and the other.
    return usable, max(0, usable - memory.free)


def _multiprocessors(handle: Any, capability: tuple[int, int]) -> int | None:
    attributes = _told(pynvml.nvmlDeviceGetAttributes_v2, handle)
    if attributes is not None and attributes.multiprocessorCount:
        return int(attributes.multiprocessorCount)
    cores = _told(pynvml.nvmlDeviceGetNumGpuCores, handle)
    return int(cores) // _CORES.get(capability, _CORES_SINCE_8_6) if cores else None
