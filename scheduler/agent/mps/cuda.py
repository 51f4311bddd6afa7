"""CUDA's report of the limits of this process, as a program: the query needs a CUDA context.

    python -m scheduler.agent.mps.cuda

prints one line of JSON. It runs as its own process because the driver may wait forever for an MPS
server, and because limits come from the environment at a process's start.
"""

import ctypes
import json
import sys
from dataclasses import asdict, dataclass

_MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT of cuda.h
_ERROR_NAMES = {
    100: "no device",
    805: "no connection to the MPS control daemon",
    806: "the MPS server failed",
    807: "the MPS server is not ready",
    808: "the MPS server has its maximum number of clients",
    809: "the GPU has its maximum number of connections",
    810: "the MPS client was terminated",
}


@dataclass(frozen=True, slots=True)
class CudaReport:
    """The devices, multiprocessors and memory that CUDA offers; ``problem``: why it fails."""

    problem: str = ""
    installed: bool = True
    devices: int = 0
    multiprocessors: int = 0
    free_bytes: int = 0


class _CudaError(Exception):
    pass


def query() -> CudaReport:
    """Initialise CUDA and query the first device; limits reduce its numbers."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return CudaReport("the CUDA driver (libcuda.so.1) is not installed here", installed=False)
    try:
        return _query(cuda)
    except _CudaError as error:
        return CudaReport(str(error))


def _query(cuda: ctypes.CDLL) -> CudaReport:
    def call(name: str, *arguments: object) -> None:
        status = getattr(cuda, name)(*arguments)
        if status != 0:
            meaning = _ERROR_NAMES.get(status, "see CUresult in cuda.h")
            raise _CudaError(f"{name} failed with error {status}: {meaning}")

    count, device, multiprocessors = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise _CudaError("CUDA has no device")
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetAttribute", ctypes.byref(multiprocessors), _MULTIPROCESSOR_COUNT, device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxSetCurrent", context)
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    finally:
        call("cuDevicePrimaryCtxRelease_v2", device)
    return CudaReport("", True, count.value, multiprocessors.value, free.value)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(query())) + "\n")
