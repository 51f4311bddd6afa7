"""Readings as NVML would give them, and time that the test moves."""

from typing import Any

from scheduler.agent.reading import DeviceReading, Reading
from scheduler.agent.settings import AgentSettings


class Clock:
    """Monotonic seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def device(index: int = 0, **differing: Any) -> DeviceReading:
    """A GPU in good health."""
    return DeviceReading(
        **{
            "index": index,
            "uuid": f"GPU-{index}",
            "model": "NVIDIA A100-SXM4-80GB",
            "memory_mib": 81_920,
            "multiprocessors": 108,
            "compute_capability": (8, 0),
            "ecc_uncorrected": 0,
            **differing,
        }
    )


def reading(*devices: DeviceReading, **differing: Any) -> Reading:
    """A reading of these GPUs."""
    return Reading(devices=devices, **differing)


def settings(**differing: Any) -> AgentSettings:
    """The defaults, without MPS daemons."""
    return AgentSettings(**{"require_mps": False, **differing})
