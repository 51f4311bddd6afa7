"""One MPS client that runs a kernel of fixed work when it is asked to; for `bench.mps`.

    python -m bench.mps_client

It prints its number of multiprocessors. Then each line of its input is a number of blocks and one
of rounds: it runs the kernel once with so many and prints the time in milliseconds. It ends with
its input. It needs the driver's libcuda alone: the kernel is PTX, which the driver compiles for the
GPU.
"""

import ctypes
import sys
import time

_MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT of cuda.h
_THREADS = 256  # of a block

# Multiplications and additions alone, so that no memory bandwidth is shared. MPS has percentages
# from compute capability 7.0 on.
_PTX = b"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry work(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %again;
    .reg .b32 %round, %rounds;
    .reg .f32 %value, %factor;
    .reg .b64 %address;
    ld.param.u64 %address, [out];
    ld.param.u32 %rounds, [rounds];
    cvta.to.global.u64 %address, %address;
    mov.f32 %value, 0f3F800000;
    mov.f32 %factor, 0f3F7FFFFF;
    mov.u32 %round, 0;
LOOP:
    fma.rn.f32 %value, %value, %factor, %factor;
    add.u32 %round, %round, 1;
    setp.lt.u32 %again, %round, %rounds;
    @%again bra LOOP;
    st.global.f32 [%address], %value;
    ret;
}
"""


class CudaError(Exception):
    """A call of the driver failed; the message names it."""


class Kernel:
    """The kernel, loaded in a context of this process.

    Attributes:
        multiprocessors: number that the driver reports; a limit of MPS reduces it.

    Raises:
        CudaError: CUDA, or the MPS server, does not work here.
    """

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise CudaError("the CUDA driver (libcuda.so.1) is not installed here") from None
        device, count = ctypes.c_int(), ctypes.c_int()
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self._function, self._out = ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDeviceGetAttribute", ctypes.byref(count), _MULTIPROCESSOR_COUNT, device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, b"work")
        self._call("cuMemAlloc_v2", ctypes.byref(self._out), ctypes.c_size_t(4))
        self.multiprocessors = count.value

    def run_ms(self, blocks: int, rounds: int) -> float:
        """Run the kernel once; return the time until it has ended."""
        arguments = (self._out, ctypes.c_uint32(rounds))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in arguments))
        began_s = time.perf_counter()
        sizes = (blocks, 1, 1, _THREADS, 1, 1)
        self._call("cuLaunchKernel", self._function, *sizes, 0, None, pointers, None)
        self._call("cuCtxSynchronize")
        return 1000 * (time.perf_counter() - began_s)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status != 0:
            raise CudaError(f"{name} failed with error {status}, see CUresult in cuda.h")


def main() -> int:
    """Run the kernel for each line of the input."""
    try:
        kernel = Kernel()
        print(kernel.multiprocessors, flush=True)
        for line in sys.stdin:
            blocks, rounds = map(int, line.split())
            print(f"{kernel.run_ms(blocks, rounds):.4f}", flush=True)
    except CudaError as error:
        print(f"error: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
