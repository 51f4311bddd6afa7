"""NVML's report of one GPU.

Source: NVIDIA's NVML API reference. NVML refuses values that an old or small GPU does not have;
only a refusal of a value that every GPU has makes the GPU unreadable.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pynvml
from pynvml import NVMLError

from scheduler.agent.gpus.compute_modes import ComputeMode, ComputeModes
from scheduler.agent.gpus.health import shareable
from scheduler.agent.gpus.reading import ROW_REMAPPING, DeviceReading, Process

# Errors of a lost GPU or driver, in contrast to an unsupported value.
_FATAL = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
_OLDER = {  # errors of a driver that is too old for a call's newer version
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
}
_UUID = re.compile(r"[A-Za-z0-9-]{1,128}", re.ASCII)  # it becomes the name of a folder

# CUDA cores per multiprocessor, by compute capability, from NVIDIA's CUDA C++ programming guide.
# NVML counts cores, and multiprocessors only of MIG devices. From 8.6 on there are 128.
_CORES = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
_CORES_SINCE_8_6 = 128


class DeviceReader:
    """Reads GPUs, and keeps them in the requested compute modes.

    Args:
        modes: compute modes to set, on GPUs that MPS can share.
    """

    def __init__(self, modes: ComputeModes) -> None:
        self._modes = modes

    def read(self, index: int, handle: Any) -> DeviceReading:
        """Read the GPU.

        Raises:
            NVMLError: the GPU cannot be read.
            ValueError: NVML's values are invalid.
        """
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        (memory_bytes, used_bytes), model = _memory(handle), pynvml.nvmlDeviceGetName(handle)
        if _UUID.fullmatch(uuid) is None or memory_bytes < 2**20 or not model:
            raise ValueError(f"NVML reports an invalid UUID, name or memory: {uuid!r}, {model!r}")
        capability = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        mig = optional_value(pynvml.nvmlDeviceGetMigMode, handle)
        utilization = optional_value(pynvml.nvmlDeviceGetUtilizationRates, handle)
        # corrected, uncorrected, pending, failed
        rows = optional_value(pynvml.nvmlDeviceGetRemappedRows, handle)
        retiring = optional_value(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        reset_due = ROW_REMAPPING if rows and rows[2] else "page retirement" if retiring else ""
        device = DeviceReading(
            index=index,
            uuid=uuid,
            model=model,
            memory_mib=memory_bytes // 2**20,
            multiprocessors=_multiprocessors(handle, capability),
            compute_capability=capability,
            mig=bool(mig and mig[0]),
            ecc_uncorrected=optional_value(
                pynvml.nvmlDeviceGetTotalEccErrors,
                handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            ),
            reset_due=reset_due,
            memory_failed=bool(rows and rows[3]),
            memory_used_bytes=used_bytes,
            utilization_ratio=utilization and utilization.gpu / 100,
            temperature_celsius=optional_value(
                pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            processes=tuple(self._processes(handle)),
        )
        # Only for GPUs that MPS can share; esg-scheduler does not use others, and MIG has no mode.
        mode, problem = self._mode(handle, self._modes.desired(uuid) if shareable(device) else None)
        exclusive = mode == ComputeMode.EXCLUSIVE_PROCESS
        return replace(device, exclusive=exclusive, mode_problem=problem)

    def _mode(self, handle: Any, desired: ComputeMode | None) -> tuple[int | None, str]:
        """Set the desired compute mode; return the resulting one and why setting it failed."""
        mode = optional_value(pynvml.nvmlDeviceGetComputeMode, handle)
        if desired is None or mode == desired:
            return mode, ""
        try:
            pynvml.nvmlDeviceSetComputeMode(handle, desired)
        except NVMLError as error:
            return mode, f"compute mode {desired.name} cannot be set: {error}"
        return desired, ""

    def _processes(self, handle: Any) -> Iterable[Process]:
        memory: dict[int, int | None] = {}
        for list_processes in (
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        ):
            for process in optional_value(list_processes, handle) or ():
                amounts = (memory.get(process.pid), process.usedGpuMemory)
                memory[process.pid] = max((m for m in amounts if m is not None), default=None)
        return (Process(pid, used_bytes) for pid, used_bytes in memory.items())


def optional_value(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call NVML; None if it does not support this for the GPU.

    Raises:
        NVMLError: the GPU, or NVML as a whole, is lost.
    """
    try:
        return function(*arguments)
    except NVMLError as error:
        if error.value in _FATAL:
            raise
        return None


def _memory(handle: Any) -> tuple[int, int]:
    """Return the memory that processes can use, and the memory that they do use, in bytes.

    Neither includes the memory that the driver reserves, if it reports that.

    Raises:
        NVMLError: the GPU cannot be read.
    """
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except NVMLError as error:
        # After any other error the old version would only return a different amount for a while.
        if error.value not in _OLDER:
            raise
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return memory.total, memory.total - memory.free
    usable = max(0, memory.total - memory.reserved)
    # NVIDIA's references contradict each other on whether `used` includes `reserved`.
    return usable, max(0, usable - memory.free)


def _multiprocessors(handle: Any, capability: tuple[int, int]) -> int | None:
    attributes = optional_value(pynvml.nvmlDeviceGetAttributes_v2, handle)
    if attributes is not None and attributes.multiprocessorCount:
        return int(attributes.multiprocessorCount)
    cores = optional_value(pynvml.nvmlDeviceGetNumGpuCores, handle)
    return int(cores) // _CORES.get(capability, _CORES_SINCE_8_6) if cores else None
