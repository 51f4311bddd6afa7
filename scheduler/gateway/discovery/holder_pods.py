"""Holders of slices: pods that hold percent and vCPUs of a GPU for their pool."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.model import names
from scheduler.model.grant import Grant, grant_of
from scheduler.model.message_text import quoted
from scheduler.model.pod import has_ended
from scheduler.model.pod_fields import PodError
from scheduler.model.pools import gateway_group, pool_role

LABEL_MANAGED_BY, MANAGED_BY = "app.kubernetes.io/managed-by", "esg-gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderPod:
    """A holder as the API server has it.

    Attributes:
        namespace: namespace of the pod, and so of its pool.
        name: name of the pod, without the namespace.
        uid: UID of the pod.
        gpu: UUID of the GPU; empty while the pod has none.
        gpu_model: model of the GPU; without one, the model that the pod asks for, or empty.
        node: name of the node; empty while the pod has none.
        percent, cpus: size of the slice; 0 while the pod has none.
        grace_s: time for which a deletion leaves the pod's container running, s.
        is_running: true if the kubelet runs the pod's container, nobody has deleted the pod, and
            there is no problem.
        is_ending: true if the pod is being deleted, or has ended.
        is_preempted: true if the scheduler ends the pod for another one of higher priority.
        is_created_here: true if a gateway has created it; it ends no others.
        unschedulable: reason of the scheduler why the pod has no node; empty without one.
        problem: reason why its slice must not be used, though it is bound; empty: it may be.
    """

    namespace: str
    name: str
    uid: str
    gpu: str
    gpu_model: str
    node: str
    percent: int
    cpus: int
    grace_s: float
    is_running: bool
    is_ending: bool
    is_preempted: bool
    is_created_here: bool
    unschedulable: str
    problem: str

    @property
    def slice_key(self) -> tuple[str, str]:
        """Namespace and GPU of its slice."""
        return self.namespace, self.gpu


def is_holder(raw: Mapping[str, Any]) -> bool:
    """Return true if a pod holds a slice, or requests one."""
    return _role(raw) == names.POOL_HOLDER


def is_member(raw: Mapping[str, Any]) -> bool:
    """Return true if a pod runs in a slice of its pool."""
    return _role(raw) == names.POOL_MEMBER


def _role(raw: Mapping[str, Any]) -> str:
    """Return the role in the pool with which a pod was bound, or will be."""
    try:
        grant = grant_of(raw)
    except PodError:
        grant = None
    return pool_role(raw) if grant is None else grant.pool


def holder_pod(raw: Mapping[str, Any]) -> HolderPod:
    """Read a holder.

    Raises:
        PodError: it is bound, and its grant is invalid.
    """
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels = metadata.get("labels") or {}
    grant, node = grant_of(raw), spec.get("nodeName") or ""
    annotations = metadata.get("annotations") or {}
    gpu_model = annotations.get(names.ANNOTATION_GPU_MODEL, "")
    if grant is not None:
        gpu_model = grant.plan.get("gpu_model")
    if not isinstance(gpu_model, str):
        raise PodError(
            f"annotation {names.ANNOTATION_PLAN}: it has no gpu_model; bind the pod anew"
        )
    is_ending = bool(metadata.get("deletionTimestamp")) or has_ended(raw)
    problem = _group_problem(raw, grant)
    is_running = bool(grant and node) and status.get("phase") == "Running"
    return HolderPod(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        gpu="" if grant is None else grant.gpu_uuid,
        gpu_model=gpu_model,
        node=node,
        percent=0 if grant is None else grant.gpu_percent,
        cpus=0 if grant is None else grant.cpu,
        grace_s=float(spec.get("terminationGracePeriodSeconds", 0)),
        is_running=is_running and not is_ending and not problem,
        is_ending=is_ending,
        is_preempted=_is_preempted(raw),
        is_created_here=labels.get(LABEL_MANAGED_BY) == MANAGED_BY,
        unschedulable=unschedulable_text(raw),
        problem=problem,
    )


def _group_problem(raw: Mapping[str, Any], grant: Grant | None) -> str:
    """Return why the pod's label is not the group of its grant; empty if it is.

    The gateway of the pool that it was bound in may have begun batches that still run.
    """
    if grant is None or (group := gateway_group(raw)) == grant.group:
        return ""
    return (
        f"label {names.LABEL_GATEWAY_GROUP}: {quoted(group)} is not the group with which its slice "
        f"was bound, {quoted(grant.group)}; delete the pod"
    )


def _is_preempted(raw: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "DisruptionTarget"
        and condition.get("reason") == "PreemptionByScheduler"
        for condition in (raw.get("status") or {}).get("conditions") or ()
    )


def unschedulable_text(raw: Mapping[str, Any]) -> str:
    """Return the scheduler's reason why a pod has no node; empty if there is none."""
    for condition in (raw.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("message") or condition.get("reason") or "Unschedulable"
    return ""
