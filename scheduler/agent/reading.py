"""What NVML tells at one moment, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Process:
    """One process with a CUDA context on a GPU; None where NVML does not say."""

    pid: int  # as the host counts
    memory_bytes: int | None = None
    utilization_ratio: float | None = None  # of the GPU's time since the last reading


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One GPU. None: NVML does not tell this of such a GPU."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    multiprocessors: int | None
    compute_capability: tuple[int, int]
    mig: bool = False
    exclusive: bool = False  # whether its compute mode is EXCLUSIVE_PROCESS
    mode_problem: str = ""  # why it is not in the compute mode that it is to be in
    ecc_uncorrected: int | None = None  # since the last reset
    reset_due: str = ""  # what of its memory waits for a reset
    memory_failed: bool = False  # no spare rows are left
    memory_used_bytes: int | None = None
    utilization_ratio: float | None = None
    temperature_celsius: int | None = None
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Xid:
    """One critical error of the driver; ``uuid`` is empty where it is not known whose."""

    uuid: str
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All GPUs, or why nothing can be said.

    Attributes:
        devices: what could be read.
        unreadable: for GPUs that could not be, by index: why.
        xids: errors since the reading before.
        problem: why NVML tells nothing at all; empty where it does.
        outdated: whether only a new process can talk to the driver that now runs.
    """

    devices: tuple[DeviceReading, ...] = ()
    unreadable: Mapping[int, str] = field(default_factory=dict)
    xids: tuple[Xid, ...] = ()
    problem: str = ""
    outdated: bool = False
