"""Admission of pods: pass, deny or mutate."""

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from scheduler.model.pod import FunctionPod, function_pod, is_function_pod
from scheduler.model.pod_fields import PodError
from scheduler.server.errors import RefusedError
from scheduler.webhook.ceilings import Ceilings, Planner, pod_ceilings
from scheduler.webhook.mutation import (
    PodDefaults,
    dropped_mounts,
    mutate_holder,
    mutate_pod,
    new_claim_name,
    overridden_variables,
    replaced_user,
)
from scheduler.webhook.wire import AdmissionRequest, AdmissionResponse, Status, check_pod

log = structlog.get_logger(__name__)

_REASONS = {403: "Forbidden", 422: "Invalid", 503: "ServiceUnavailable"}


class DeniedError(Exception):
    """A pod is denied: ``code`` is an HTTP status; the message addresses the pod's creator."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Admits pods.

    A function pod that cannot be mutated is denied: without its limits it would have a whole GPU.
    While the service is not ready, it is denied with code 503 instead of an HTTP error, because a
    denial holds whatever the webhook's ``failurePolicy``, and because its message reaches the pod's
    creator. Controllers retry by themselves. All other pods pass, ready or not.

    Attributes:
        planner: function that plans a pod; it raises `RefusedError` without candidates.
        prepared: function that waits until the pod can be planned at once.
        not_ready_reason: function that returns why nothing can be planned now; empty when ready.
        clock: clock in seconds since the epoch, the same as that of ``planner``.
        headroom_ratio: part of the slack that may pass before the pod is bound, see `pod_ceilings`.
        defaults: settings that all pods share.
    """

    planner: Planner
    prepared: Callable[[FunctionPod], Awaitable[None]]
    not_ready_reason: Callable[[], str]
    clock: Callable[[], float]
    headroom_ratio: float
    defaults: PodDefaults

    async def admit(self, request: AdmissionRequest) -> AdmissionResponse:
        """Answer one request.

        Raises:
            ValidationError: pydantic's; the object's kind is Pod, but its fields are not a Pod's.
        """
        raw = request.object
        if not request.creates_pod() or raw is None or not _is_function_pod(raw):
            return AdmissionResponse(uid=request.uid, allowed=True)
        check_pod(raw)
        try:
            return await self._admit(request, raw)
        except DeniedError as error:
            log.warning("pod denied", pod=_name(request, raw), code=error.code, error=str(error))
            status = Status(code=error.code, reason=_REASONS[error.code], message=str(error))
            return AdmissionResponse(uid=request.uid, allowed=False, status=status)

    async def _admit(self, request: AdmissionRequest, raw: Mapping[str, Any]) -> AdmissionResponse:
        pod = _read_pod(request, raw)
        if pod.is_holder:
            return _patch(request, raw, mutate_holder(raw, self.defaults))
        ceilings = await self._ceilings(pod)
        # A new name each time: the pod may be a copy, and a claim belongs to one pod.
        claim = new_claim_name() if self.defaults.resource_claims else ""
        mutated = mutate_pod(raw, pod.container, ceilings, self.defaults, claim)
        warnings = _warnings(
            pod,
            ceilings,
            overridden_variables(raw, mutated, pod.container),
            dropped_mounts(raw, mutated, pod.container),
            replaced_user(raw, mutated, pod.container),
        )
        return _patch(request, raw, mutated, warnings)

    async def _ceilings(self, pod: FunctionPod) -> Ceilings:
        if reason := self.not_ready_reason():
            raise DeniedError(503, f"esg-scheduler is not ready: {reason}; try again")
        await self.prepared(pod)
        try:
            return pod_ceilings(
                pod, self.planner, now_s=self.clock(), headroom_ratio=self.headroom_ratio
            )
        except RefusedError as error:
            raise DeniedError(403, str(error)) from None


def _patch(
    request: AdmissionRequest,
    raw: Mapping[str, Any],
    mutated: Mapping[str, Any],
    warnings: tuple[str, ...] | None = None,
) -> AdmissionResponse:
    """Allow the pod with what the mutation changed."""
    # Whole fields: the API server applies the patch to the very object that it sent.
    operations = [
        {"op": "replace", "path": f"/{field}", "value": mutated[field]}
        for field in ("metadata", "spec")
        if mutated[field] != raw[field]
    ]
    if not operations:
        return AdmissionResponse(uid=request.uid, allowed=True)
    return AdmissionResponse(
        uid=request.uid,
        allowed=True,
        patch_type="JSONPatch",
        patch=b64encode(json.dumps(operations).encode()).decode(),
        warnings=warnings,
    )


def _is_function_pod(raw: Mapping[str, Any]) -> bool:
    metadata = raw.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return isinstance(labels, Mapping) and is_function_pod(raw)


def _read_pod(request: AdmissionRequest, raw: Mapping[str, Any]) -> FunctionPod:
    metadata = {**(raw.get("metadata") or {})}
    if request.namespace:
        # A pod that a controller creates has its namespace only in the request.
        metadata["namespace"] = request.namespace
    try:
        pod = function_pod({**raw, "metadata": metadata})
    except PodError as error:
        raise DeniedError(422, str(error)) from None
    _refuse_privileged(raw["spec"])
    if node := raw["spec"].get("nodeName"):
        # kube-scheduler would count its request, and no Binding would ever grant it a share.
        raise DeniedError(
            422,
            f"spec.nodeName is {node}: the scheduler chooses the node of a function pod; remove "
            "it, or use nodeSelector",
        )
    return pod


def _refuse_privileged(spec: Mapping[str, Any]) -> None:
    """Refuse any privileged container: a runtime gives it all devices of the node.

    Capabilities pass. They give no device, and Pod Security decides which of them a namespace
    allows.
    """
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        if (container.get("securityContext") or {}).get("privileged"):
            raise DeniedError(
                403,
                f"container {container.get('name')!r} is privileged: it would see every GPU of its "
                "node, not only the granted one; remove securityContext.privileged",
            )


def _warnings(
    pod: FunctionPod,
    ceilings: Ceilings,
    overridden: list[str],
    dropped: list[str],
    user: int | None,
) -> tuple[str, ...] | None:
    warnings = []
    if not ceilings.feasible:
        warnings.append(
            f"the SLO of {pod.workflow or pod.stage} cannot be met from stage {pod.stage}"
        )
    if overridden:
        warnings.append(f"esg-scheduler overrides these variables: {', '.join(overridden)}")
    if dropped:
        warnings.append(
            f"esg-scheduler replaces these mounts by its GPU's folders: {', '.join(dropped)}; the "
            "size of a /dev/shm of your own does not apply"
        )
    if user is not None:
        warnings.append(
            f"esg-scheduler replaces runAsUser {user}: a GPU's MPS server serves one user at a time"
        )
    return tuple(warnings) or None


def _name(request: AdmissionRequest, raw: Mapping[str, Any]) -> str:
    metadata = raw["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{request.namespace}/{name}"
