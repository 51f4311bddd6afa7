"""Pods as the extender is shown them: ours and readable, ours and wrong, or none of ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.model import names
from scheduler.model.pod import (
    FunctionPod,
    PodError,
    function_pod,
    is_function_pod,
    requested_gpu_percent,
)
from scheduler.placement.candidates import CpuRequest

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_UNNAMED = (
    f"the pod asks for {names.RESOURCE_GPU_PERCENT} and does not say what it runs, so no GPU can "
    f"be chosen for it; create it anew with the label {names.LABEL_FUNCTION}, or with "
    f"{names.LABEL_WORKFLOW} and {names.LABEL_STAGE}, or without that request"
)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits for a node: ours and readable, ours and wrong, or none of ours.

    One that asks for a share and has no label of ours is wrong: kube-scheduler would count the
    share on a node, and the ledger on no GPU.
    """

    namespace: str
    name: str
    uid: str
    pod: FunctionPod | None = None
    problem: str = ""


def describe(raw: Mapping[str, Any]) -> PendingPod:
    """A Pod object as a `PendingPod`; what is wrong about it is kept as its ``problem``."""
    metadata = raw.get("metadata") or {}
    facts = (
        metadata.get("namespace") or "default",
        metadata.get("name") or "",
        metadata.get("uid") or "",
    )
    if not is_function_pod(raw):
        return PendingPod(*facts, problem=_UNNAMED if requested_gpu_percent(raw) else "")
    try:
        return PendingPod(*facts, pod=function_pod(raw))
    except PodError as error:
        return PendingPod(*facts, problem=str(error))


def version_of(raw: Mapping[str, Any]) -> int:
    """An object's resourceVersion, which orders the changes of its kind; 0 where it has none."""
    version = (raw.get("metadata") or {}).get("resourceVersion")
    return int(version) if isinstance(version, str) and version.isdecimal() else 0


def cpu_request(pod: FunctionPod) -> CpuRequest:
    """What the pod requests whatever its configuration."""
    return CpuRequest(pod.cpu_ceiling_milli or 0, pod.other_containers_cpu_milli)


def states_preference(raw: Mapping[str, Any]) -> bool:
    """Whether the pod says which nodes it would rather have, by preferred affinity or spreading.

    kube-scheduler's scoring heeds that, so such a pod must be shown all nodes that hold it.
    """
    spec = raw.get("spec") or {}
    if spec.get("topologySpreadConstraints"):
        return True
    affinity = spec.get("affinity")
    kinds = affinity.values() if isinstance(affinity, Mapping) else ()
    return any(isinstance(kind, Mapping) and kind.get(_PREFERRED) for kind in kinds)
