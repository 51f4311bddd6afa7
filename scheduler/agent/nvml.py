"""NVML while it is initialised: all GPUs, and their critical errors as they happen.

Every call may hang with a sick GPU or a driver that is being exchanged, so all this belongs into
`reader`'s thread.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pynvml
from pynvml import NVMLError

from scheduler.agent.compute_modes import ComputeModes
from scheduler.agent.device import DeviceReader
from scheduler.agent.reading import Reading, Xid

_DRIVER = {  # NVML as a whole does not work: what there is to do
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "NVML (libnvidia-ml.so.1) is not here: install NVIDIA's "
    "driver on the node, and run this under NVIDIA's container runtime",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA's driver is not loaded on this node",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was exchanged while this process ran; "
    "it must be started anew",
    pynvml.NVML_ERROR_UNINITIALIZED: "NVML lost its driver",
}


class NvmlError(Exception):
    """NVML tells nothing of any GPU; the message says why and what to do.

    Attributes:
        outdated: whether only a new process can talk to the driver that now runs.
    """

    def __init__(self, error: Any) -> None:
        self.outdated = error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        super().__init__(_DRIVER.get(error.value, f"NVML: {error}"))


class Session:
    """NVML while it is initialised; made by `opened`.

    Attributes:
        uuids: the GPUs that were there when it was opened, whose errors are listened for.
        deaf: whether errors can no longer be listened for.
    """

    def __init__(self, modes: ComputeModes, *, listen: bool) -> None:
        self.deaf = not listen
        self.uuids: dict[int, str] = {}  # by the address behind a handle
        self._devices = DeviceReader(modes)
        self._events = pynvml.nvmlEventSetCreate() if listen else None
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(NVMLError):  # the next reading tells
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                self.uuids[_address(handle)] = pynvml.nvmlDeviceGetUUID(handle)
                if listen:
                    self._listen(handle)

    def close(self) -> None:
        """Let go of what NVML keeps for it."""
        if self._events is not None:
            with suppress(NVMLError):
                pynvml.nvmlEventSetFree(self._events)

    def read(self, xids: tuple[Xid, ...] = ()) -> Reading:
        """All GPUs as they are now, with the errors that were heard of since the last reading.

        Raises:
            NvmlError: nothing can be read.
        """
        devices, unreadable = [], {}
        try:
            count = pynvml.nvmlDeviceGetCount()
        except NVMLError as error:
            raise NvmlError(error) from None
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                devices.append(self._devices.read(index, handle))
            except NVMLError as error:
                if error.value in _DRIVER:
                    raise NvmlError(error) from None
                unreadable[index] = str(error)
            except ValueError as error:
                unreadable[index] = str(error)
        return Reading(devices=tuple(devices), unreadable=unreadable, xids=xids)

    def wait(self, timeout_s: float) -> Xid | None:
        """The next critical error, or None when there was none in that time."""
        try:
            event = pynvml.nvmlEventSetWait_v2(self._events, max(1, int(timeout_s * 1000)))
        except NVMLError as error:
            # A GPU that fell off the bus ends the waiting for all.
            self.deaf = error.value != pynvml.NVML_ERROR_TIMEOUT
            return None
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        return Xid(self.uuids.get(_address(event.device), ""), event.eventData)

    def _listen(self, handle: Any) -> None:
        wanted = pynvml.nvmlEventTypeXidCriticalError
        if pynvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted:
            pynvml.nvmlDeviceRegisterEvents(handle, wanted, self._events)


@contextmanager
def opened(modes: ComputeModes | None = None, *, listen: bool = True) -> Iterator[Session]:
    """NVML, initialised for the block.

    Args:
        modes: the compute modes to set; None: none is touched.
        listen: hear of critical errors.

    Raises:
        NvmlError: it cannot be initialised.
    """
    try:
        pynvml.nvmlInit()
    except NVMLError as error:
        raise NvmlError(error) from None
    try:
        try:
            session = Session(modes or ComputeModes(), listen=listen)
        except NVMLError as error:
            raise NvmlError(error) from None
        try:
            yield session
        finally:
            session.close()
    finally:
        with suppress(NVMLError):
            pynvml.nvmlShutdown()


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
