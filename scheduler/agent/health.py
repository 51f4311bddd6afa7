"""What makes a GPU ill: one that nothing more should be placed on."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from scheduler.agent.reading import DeviceReading
from scheduler.agent.settings import AgentSettings

Reason = Literal["nvml", "lost", "unsupported", "mig", "xid", "ecc", "memory", "mps"]
_VOLTA = (7, 0)


@dataclass(frozen=True, slots=True)
class Illness:
    """Why nothing may be placed on a GPU: a word for metrics, a sentence for people."""

    reason: Reason
    message: str


def illness(
    device: DeviceReading, xids: Collection[int], mps_trouble: str, settings: AgentSettings
) -> Illness | None:
    """The gravest thing that is wrong with the GPU, or None.

    Args:
        device: what NVML tells of it.
        xids: the critical errors it has had, application errors included.
        mps_trouble: what is wrong with its MPS daemon, or nothing.
        settings: what counts as illness.
    """
    return next(_illnesses(device, xids, mps_trouble, settings), None)


def shareable(device: DeviceReading) -> bool:
    """Whether MPS can share the GPU at all, be it well or ill."""
    return not any(_hindrances(device))


def _illnesses(
    device: DeviceReading, xids: Collection[int], mps_trouble: str, settings: AgentSettings
) -> Iterator[Illness]:
    yield from _hindrances(device)
    if device.multiprocessors is None:
        yield Illness("unsupported", "NVML does not tell how many multiprocessors it has")
    if fatal := sorted(set(xids) - settings.application_xids):
        codes = ", ".join(str(xid) for xid in fatal)
        yield Illness(
            "xid",
            f"XID {codes}: reset the GPU, with the containers agent and mps on the node ended: "
            "no GPU is reset under a client of NVML",
        )
    if (device.ecc_uncorrected or 0) > settings.ecc_uncorrected_max:
        message = f"{device.ecc_uncorrected} uncorrected ECC errors since its last reset"
        yield Illness("ecc", message)
    if device.memory_failed:
        yield Illness("memory", "row remapping failed: its memory has no spare rows left")
    if device.reset_due:
        yield Illness("memory", f"{device.reset_due} is pending: the GPU wants a reset")
    if mps_trouble:
        yield Illness("mps", mps_trouble)


def _hindrances(device: DeviceReading) -> Iterator[Illness]:
    major, minor = device.compute_capability
    if (major, minor) < _VOLTA:
        message = f"compute capability {major}.{minor}: MPS limits shares from 7.0 on"
        yield Illness("unsupported", message)
    if device.mig:
        yield Illness("mig", "MIG is on: shares are of whole GPUs; switch MIG off to share it")
