"""Pods as the extender receives them: function pods, malformed function pods, and other pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.model import names
from scheduler.model.pod import FunctionPod, function_pod, is_function_pod
from scheduler.model.pod_fields import PodError
from scheduler.model.pod_resources import requested_gpu_percent
from scheduler.placement.candidates import CpuRequest

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_UNLABELLED = (
    f"the pod requests {names.RESOURCE_GPU_PERCENT} and has no label that says what it runs, so no "
    f"GPU can be chosen for it; recreate it with the label {names.LABEL_FUNCTION}, or with "
    f"{names.LABEL_WORKFLOW} and {names.LABEL_STAGE}, or without that request"
)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that is not bound yet.

    Attributes:
        function_pod: pod of a function, or holder of a slice; None for a pod of another owner, and
            for one with a ``problem``.
        problem: reason why a function pod cannot be read. A pod that requests a GPU share and has
            none of our labels has one: kube-scheduler would count the share on a node, the ledger
            on no GPU.
        raw: pod object of the API server.
    """

    namespace: str
    name: str
    uid: str
    raw: Mapping[str, Any]
    function_pod: FunctionPod | None = None
    problem: str = ""


def describe(raw: Mapping[str, Any]) -> PendingPod:
    """Read a Pod object; what is wrong with it becomes its ``problem``."""
    metadata = raw.get("metadata") or {}
    namespace = metadata.get("namespace") or "default"
    name, uid = metadata.get("name") or "", metadata.get("uid") or ""
    pod, problem = None, ""
    if not is_function_pod(raw):
        problem = _UNLABELLED if requested_gpu_percent(raw) else ""
    else:
        try:
            pod = function_pod(raw)
        except PodError as error:
            problem = str(error)
    return PendingPod(namespace, name, uid, raw, pod, problem)


def version_of(raw: Mapping[str, Any]) -> int:
    """Parse the resourceVersion, which orders the changes of one kind; 0 where it is absent."""
    version = (raw.get("metadata") or {}).get("resourceVersion")
    return int(version) if isinstance(version, str) and version.isdecimal() else 0


def cpu_request(pod: FunctionPod) -> CpuRequest:
    """CPU request of the pod in any configuration."""
    return CpuRequest(
        pod.cpu_ceiling_milli or 0, pod.other_containers_cpu_milli, in_slice=pod.is_member
    )


def states_preference(raw: Mapping[str, Any]) -> bool:
    """Return True for a pod with preferred affinity or topology spread constraints.

    kube-scheduler scores nodes by them, so filter must pass all feasible nodes of such a pod.
    """
    spec = raw.get("spec") or {}
    if spec.get("topologySpreadConstraints"):
        return True
    affinity = spec.get("affinity")
    kinds = affinity.values() if isinstance(affinity, Mapping) else ()
    return any(isinstance(kind, Mapping) and kind.get(_PREFERRED) for kind in kinds)
