"""A reading of NVML, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ROW_REMAPPING = "row remapping"


@dataclass(frozen=True, slots=True)
class Process:
    """One process with a CUDA context on a GPU; None: unknown to NVML."""

    pid: int  # in the host's PID namespace
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One GPU. None: NVML does not support the value for this GPU."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    multiprocessors: int | None
    compute_capability: tuple[int, int]
    mig: bool = False
    exclusive: bool = False  # its compute mode is EXCLUSIVE_PROCESS
    mode_problem: str = ""  # why it is not in the requested compute mode
    ecc_uncorrected: int | None = None  # since the last reset
    reset_due: str = ""  # the memory repair that needs a reset
    memory_failed: bool = False  # no spare rows are left
    memory_used_bytes: int | None = None
    utilization_ratio: float | None = None
    temperature_celsius: int | None = None
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Xid:
    """One critical error of the driver; ``uuid`` is empty if its GPU is unknown."""

    uuid: str
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All GPUs, or why none can be read.

    Attributes:
        devices: readable GPUs.
        unreadable: reasons why the other GPUs cannot be read, by index.
        xids: errors since the previous reading.
        cuda_version: CUDA version of the driver: 1000 times the major number plus 10 times the
            minor one.
        problem: reason why NVML as a whole does not work; empty if it does.
        outdated: true if only a new process can use the current driver.
    """

    devices: tuple[DeviceReading, ...] = ()
    unreadable: Mapping[int, str] = field(default_factory=dict)
    xids: tuple[Xid, ...] = ()
    cuda_version: int | None = None
    problem: str = ""
    outdated: bool = False
