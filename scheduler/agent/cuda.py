"""What the CUDA driver grants this process: a program, for its answer costs a CUDA context.

    python -m scheduler.agent.cuda

prints one line of JSON. It is run apart because the driver may wait for an MPS server without end,
and because limits are those of the environment with which a process starts.
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
    808: "the MPS server has as many clients as it may have",
    809: "the GPU has as many connections as it may have",
    810: "the MPS client was terminated",
}


@dataclass(frozen=True, slots=True)
class Granted:
    """What CUDA says that there is; ``problem`` says why it says nothing."""

    problem: str = ""
    installed: bool = True
    devices: int = 0
    multiprocessors: int = 0
    free_bytes: int = 0


class _CudaError(Exception):
    pass


def ask() -> Granted:
    """Initialise CUDA, and look at the first device; a limit shows in its numbers."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Granted("the CUDA driver (libcuda.so.1) is not here", installed=False)
    try:
        return _ask(cuda)
    except _CudaError as error:
        return Granted(str(error))


def _ask(cuda: ctypes.CDLL) -> Granted:
    def call(name: str, *arguments: object) -> None:
        status = getattr(cuda, name)(*arguments)
        if status != 0:
            told = _ERROR_NAMES.get(status, "see CUresult in cuda.h")
            raise _CudaError(f"{name} failed with error {status}: {told}")

    count, device, found = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise _CudaError("CUDA finds no device")
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetAttribute", ctypes.byref(found), _MULTIPROCESSOR_COUNT, device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxSetCurrent", context)
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    finally:
        call("cuDevicePrimaryCtxRelease_v2", device)
    return Granted(devices=count.value, multiprocessors=found.value, free_bytes=free.value)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(ask())) + "\n")
