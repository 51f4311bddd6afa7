"""Requested compute modes of the GPUs: requested on the event loop, set in `reader`'s thread.

A program without an MPS daemon runs without limits (NVIDIA's manual page of
nvidia-cuda-mps-control): only the GPU's mode can refuse it. In EXCLUSIVE_PROCESS a GPU accepts one
process, which is the MPS server; without a server it accepts the first process that comes. So while
no daemon answers it must accept none: PROHIBITED. Neither ends a process that has its context.
"""

import asyncio
import threading
from contextlib import suppress
from enum import IntEnum

import pynvml

_REQUEST_TIMEOUT_S = 3.0  # a reading of all GPUs takes some hundred milliseconds, or NVML hangs


class ComputeMode(IntEnum):
    """NVIDIA's names and numbers."""

    DEFAULT = pynvml.NVML_COMPUTEMODE_DEFAULT
    PROHIBITED = pynvml.NVML_COMPUTEMODE_PROHIBITED
    EXCLUSIVE_PROCESS = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


class ComputeModes:
    """The requested mode of each GPU; a GPU without a request keeps its mode.

    Attributes:
        changed: event that is set by a new request, until a reading begins.
    """

    def __init__(self) -> None:
        self.changed = threading.Event()
        self._requested: dict[str, ComputeMode] = {}
        self._requests = 0
        self._completed = 0
        self._completion = asyncio.Event()

    async def request(self, uuid: str, mode: ComputeMode) -> None:
        """Keep the GPU in the mode from now on; return after the attempt, or if NVML hangs.

        Each reading has the result: `DeviceReading.mode_problem`.
        """
        self._requested[uuid] = mode
        self._requests += 1
        request = self._requests
        self.changed.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                while self._completed < request:
                    self._completion.clear()
                    await self._completion.wait()

    def desired(self, uuid: str) -> ComputeMode | None:
        """Return the requested mode of the GPU, to the reading thread."""
        return self._requested.get(uuid)

    def begin(self) -> int:
        """Begin a reading, in the reading thread; return the value for `complete`."""
        self.changed.clear()
        return self._requests

    def complete(self, request: int) -> None:
        """End a reading: all requests up to this one have been attempted."""
        self._completed = request
        self._completion.set()
