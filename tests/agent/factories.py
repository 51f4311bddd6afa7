"""Readings, GPUs and settings."""

from typing import Any

from scheduler.agent.gpus.reading import DeviceReading, Reading
from scheduler.agent.settings import AgentSettings
from scheduler.model.node import Gpu
from tests.agent.fakes import FakeGpus


def device(index: int = 0, **overrides: Any) -> DeviceReading:
    """Create a reading of a healthy GPU."""
    return DeviceReading(
        **{
            "index": index,
            "uuid": f"GPU-{index}",
            "model": "NVIDIA A100-SXM4-80GB",
            "memory_mib": 81_920,
            "multiprocessors": 108,
            "compute_capability": (8, 0),
            "ecc_uncorrected": 0,
            **overrides,
        }
    )


def reading(*devices: DeviceReading, **overrides: Any) -> Reading:
    """Create a reading of these GPUs."""
    return Reading(devices=devices, **overrides)


def settings(**overrides: Any) -> AgentSettings:
    """Create the default settings, without MPS daemons."""
    return AgentSettings(**{"require_mps": False, **overrides})


def expected_gpus(gpus: FakeGpus, *unhealthy: int) -> tuple[Gpu, ...]:
    """Create the GPUs of the expected inventory."""
    return tuple(
        Gpu(
            index=index,
            uuid=uuid,
            model="NVIDIA A100-SXM4-80GB",
            memory_mib=81_920,
            multiprocessors=108,
            healthy=index not in unhealthy,
        )
        for index, uuid in enumerate(gpus.uuids)
    )
