"""The compute modes that GPUs are kept in: wanted on the event loop, set in `reader`'s thread.

A program that finds no MPS daemon runs without one, and without limits (NVIDIA's manual page of
nvidia-cuda-mps-control): only the GPU's mode can refuse it. In EXCLUSIVE_PROCESS a GPU takes one
process, and the MPS server is that; where none is, it takes whoever comes first, and so it takes
nobody while no daemon answers: PROHIBITED. Neither ends a process that has its context already.
"""

import asyncio
import threading
from contextlib import suppress
from enum import IntEnum

import pynvml

_PATIENCE_S = 3.0  # a reading of all GPUs takes some hundred milliseconds, or NVML hangs


class ComputeMode(IntEnum):
    """NVIDIA's names and numbers."""

    PROHIBITED = pynvml.NVML_COMPUTEMODE_PROHIBITED
    EXCLUSIVE_PROCESS = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


class ComputeModes:
    """Which mode each GPU is to be in; a GPU of which nothing is said keeps its own.

    Attributes:
        changed: set while something is wanted that no reading has begun with.
    """

    def __init__(self) -> None:
        self.changed = threading.Event()
        self._wanted: dict[str, ComputeMode] = {}
        self._said = 0  # how often something was wanted
        self._tried = 0  # so many of those were tried
        self._news = asyncio.Event()

    async def want(self, uuid: str, mode: ComputeMode) -> None:
        """Keep the GPU in the mode from now on; returns when that was tried, or NVML is silent.

        Whether it could be set is in each reading: `DeviceReading.mode_problem`.
        """
        self._wanted[uuid] = mode
        self._said += 1
        said = self._said
        self.changed.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while self._tried < said:
                    self._news.clear()
                    await self._news.wait()

    def wanted(self, uuid: str) -> ComputeMode | None:
        """The mode that the GPU is to be in; for the reading thread."""
        return self._wanted.get(uuid)

    def begin(self) -> int:
        """What to tell `tried` when the reading that begins now has ended; for the same thread."""
        self.changed.clear()
        return self._said

    def tried(self, begun: int) -> None:
        """A reading has ended, and has set what was wanted when it began."""
        self._tried = begun
        self._news.set()
