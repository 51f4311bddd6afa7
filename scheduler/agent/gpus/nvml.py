"""An initialised NVML: reads all GPUs, and waits for their critical errors.

Any call may hang with a broken GPU or during an exchange of the driver, so only `reader`'s thread
uses this module.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pynvml
from pynvml import NVMLError

from scheduler.agent.gpus.compute_modes import ComputeModes
from scheduler.agent.gpus.device import DeviceReader, optional_value
from scheduler.agent.gpus.reading import Reading, Xid

_DRIVER = {  # NVML as a whole does not work: the remedies
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "NVML (libnvidia-ml.so.1) is missing: install NVIDIA's "
    "driver on the node, and run this under NVIDIA's container runtime",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA's driver is not loaded on this node",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was exchanged while this process ran; "
    "restart the container",
    pynvml.NVML_ERROR_UNINITIALIZED: "NVML lost its driver",
}


class NvmlError(Exception):
    """NVML cannot read any GPU; the message says why and what to do.

    Attributes:
        outdated: true if only a new process can use the current driver.
    """

    def __init__(self, error: Any) -> None:
        self.outdated = error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        super().__init__(_DRIVER.get(error.value, f"NVML: {error}"))


class NvmlSession:
    """An initialised NVML, created by `open_nvml`.

    Attributes:
        uuids: UUIDs of the GPUs at its start, whose errors it receives.
        is_unsubscribed: true if it receives no critical errors, or no more.
    """

    def __init__(self, modes: ComputeModes, *, listen: bool) -> None:
        self.is_unsubscribed = not listen
        self.uuids: dict[int, str] = {}  # by the address behind a handle
        self._devices = DeviceReader(modes)
        self._events = pynvml.nvmlEventSetCreate() if listen else None
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(NVMLError):  # the next reading reports it
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                self.uuids[_address(handle)] = pynvml.nvmlDeviceGetUUID(handle)
                if listen:
                    self._listen(handle)

    def close(self) -> None:
        """Free the event set."""
        if self._events is not None:
            with suppress(NVMLError):
                pynvml.nvmlEventSetFree(self._events)

    def driver_version(self) -> str:
        """Return the version of the driver, as in ``580.159.04``."""
        return str(pynvml.nvmlSystemGetDriverVersion())

    def read(self, xids: tuple[Xid, ...] = ()) -> Reading:
        """Read all GPUs; ``xids`` are the errors since the last reading.

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
        return Reading(
            devices=tuple(devices),
            unreadable=unreadable,
            xids=xids,
            cuda_version=_cuda_version(),
        )

    def wait(self, timeout_s: float) -> Xid | None:
        """Wait for the next critical error; None if there is none in that time."""
        try:
            event = pynvml.nvmlEventSetWait_v2(self._events, max(1, int(timeout_s * 1000)))
        except NVMLError as error:
            # A GPU that fell off the bus ends the wait for all GPUs.
            self.is_unsubscribed = error.value != pynvml.NVML_ERROR_TIMEOUT
            return None
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        return Xid(self.uuids.get(_address(event.device), ""), event.eventData)

    def _listen(self, handle: Any) -> None:
        xid_events = pynvml.nvmlEventTypeXidCriticalError
        if pynvml.nvmlDeviceGetSupportedEventTypes(handle) & xid_events:
            pynvml.nvmlDeviceRegisterEvents(handle, xid_events, self._events)


@contextmanager
def open_nvml(modes: ComputeModes | None = None, *, listen: bool = True) -> Iterator[NvmlSession]:
    """Initialise NVML for the block.

    Args:
        modes: compute modes to set; None: set none.
        listen: true to receive critical errors.

    Raises:
        NvmlError: the initialisation failed.
    """
    try:
        pynvml.nvmlInit()
    except NVMLError as error:
        raise NvmlError(error) from None
    try:
        try:
            session = NvmlSession(modes or ComputeModes(), listen=listen)
        except NVMLError as error:
            raise NvmlError(error) from None
        try:
            yield session
        finally:
            session.close()
    finally:
        with suppress(NVMLError):
            pynvml.nvmlShutdown()


def _cuda_version() -> int | None:
    try:
        version: int | None = optional_value(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    except NVMLError:  # the next reading reports it
        return None
    return version


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
