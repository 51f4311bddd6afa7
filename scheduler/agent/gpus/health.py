"""Health of a GPU: no pod is placed on an unhealthy one."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from scheduler.agent.gpus.reading import ROW_REMAPPING, DeviceReading
from scheduler.agent.settings import AgentSettings

Reason = Literal["nvml", "lost", "claimed", "unsupported", "mig", "xid", "ecc", "memory", "mps"]
_VOLTA = (7, 0)
# NVIDIA GPU Memory Error Management, "Supported GPUs": an uncorrectable error ends only the process
# that it hits, and its page is not used again until a reset.
_CONTAINMENT = {(8, 0), (9, 0)}
CONTAINED_XIDS = frozenset({48, 63, 94, 160, 171})
"""Reports of such an error, and of the repair that it waits for; an uncontained one is 95."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Why a GPU is unhealthy: a code for metrics, a message for people."""

    reason: Reason
    message: str


def health_problem(
    device: DeviceReading, xids: Collection[int], mps_trouble: str, settings: AgentSettings
) -> HealthProblem | None:
    """Return the GPU's most serious problem, or None.

    Args:
        device: last reading of the GPU.
        xids: critical errors of the GPU, including application errors.
        mps_trouble: trouble of the GPU's MPS daemon; empty: none.
        settings: limits and ignored errors.
    """
    return next(_problems(device, xids, mps_trouble, settings), None)


def shareable(device: DeviceReading) -> bool:
    """Return true if MPS can share the GPU at all, healthy or not."""
    return not any(_sharing_obstacles(device))


def _problems(
    device: DeviceReading, xids: Collection[int], mps_trouble: str, settings: AgentSettings
) -> Iterator[HealthProblem]:
    yield from _sharing_obstacles(device)
    if device.multiprocessors is None:
        yield HealthProblem("unsupported", "NVML does not report its number of multiprocessors")
    contains = device.compute_capability in _CONTAINMENT
    harmless = settings.application_xids | (CONTAINED_XIDS if contains else frozenset())
    if fatal := sorted(set(xids) - harmless):
        codes = ", ".join(str(xid) for xid in fatal)
        yield HealthProblem(
            "xid",
            f"XID {codes}: end the containers agent and mps on the node, then reset the GPU: "
            "no GPU can be reset while a client of NVML has it open",
        )
    if (device.ecc_uncorrected or 0) > settings.ecc_uncorrected_max and not contains:
        message = f"{device.ecc_uncorrected} uncorrected ECC errors since its last reset"
        yield HealthProblem("ecc", message)
    if device.memory_failed:
        yield HealthProblem("memory", "row remapping failed: no spare rows are left")
    if device.reset_due and not (contains and device.reset_due == ROW_REMAPPING):
        yield HealthProblem("memory", f"{device.reset_due} is pending: reset the GPU")
    if mps_trouble:
        yield HealthProblem("mps", mps_trouble)


def _sharing_obstacles(device: DeviceReading) -> Iterator[HealthProblem]:
    major, minor = device.compute_capability
    if (major, minor) < _VOLTA:
        message = f"compute capability {major}.{minor}: MPS can limit shares only from 7.0 on"
        yield HealthProblem("unsupported", message)
    if device.mig:
        yield HealthProblem("mig", "MIG is on: only whole GPUs can be shared; switch MIG off")
