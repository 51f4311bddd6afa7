"""Grants of the node's pods by GPU: `esg agent` writes them, `esg mps` reads them.

Only the agent knows the pods, and only `esg mps` may limit and end processes. It is a file in a
volume of their pod, for the reasons of `daemon_state`. A pod's grant never changes, so an old file
has no wrong pods, but it may lack new ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.whole_file import write_whole
from scheduler.model.pod import PERCENT_MAX

_Grant = tuple[Annotated[int, Field(ge=0, le=PERCENT_MAX)], Annotated[int, Field(gt=0)]]


@dataclass(frozen=True, slots=True)
class MpsLimits:
    """Limits that an MPS server sets for its clients; they can only lower them.

    Attributes:
        percent: share of the GPU's multiprocessors, in percent.
        memory_mib: GPU memory of one client, in MiB.
    """

    percent: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class GpuGrants:
    """The granted pods of one GPU.

    Attributes:
        pods: UIDs of the pods.
        limits: largest share among them; None: there are none.
        is_complete: true if no pod is missing.
    """

    pods: frozenset[str] = frozenset()
    limits: MpsLimits | None = None
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class NodeGrants:
    """The granted pods of a node that the agent knows.

    Attributes:
        is_recent: true if the agent knows all pods, and has written this within the last seconds.
    """

    is_recent: bool = False
    gpus: Mapping[str, GpuGrants] = field(default_factory=dict)

    def of(self, uuid: str, *, memory_mib: int) -> GpuGrants:
        """Return the grants of a GPU; its whole is the limit if some pods may not be known."""
        grants = self.gpus.get(uuid, GpuGrants())
        if self.is_recent:
            return replace(grants, is_complete=True)
        return replace(grants, limits=MpsLimits(PERCENT_MAX, memory_mib))


class _GrantsFile(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    at_s: float  # monotonic clock
    gpus: dict[str, dict[str, _Grant]]  # by UUID and by UID of the pod: percent and MiB


def write_grants(path: Path, pods: Mapping[str, GrantedPod], *, clock: Callable[[], float]) -> None:
    """Write the granted pods, by UID, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    gpus: dict[str, dict[str, _Grant]] = {}
    for uid, pod in pods.items():
        gpus.setdefault(pod.gpu_uuid, {})[uid] = pod.gpu_percent, pod.memory_mib
    write_whole(path, _GrantsFile(at_s=clock(), gpus=gpus).model_dump_json())


def read_grants(path: Path, *, clock: Callable[[], float], silent_after_s: float) -> NodeGrants:
    """Read the granted pods; none without a valid file."""
    try:
        content = _GrantsFile.model_validate_json(path.read_bytes(), strict=False)
    except (OSError, ValidationError):
        return NodeGrants()
    return NodeGrants(
        is_recent=0 <= clock() - content.at_s <= silent_after_s,
        gpus={
            uuid: GpuGrants(
                frozenset(grants),
                MpsLimits(
                    max(percent for percent, _ in grants.values()),
                    max(memory_mib for _, memory_mib in grants.values()),
                ),
            )
            for uuid, grants in content.gpus.items()
            if grants
        },
    )
