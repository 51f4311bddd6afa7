"""Whether a pod is admitted, and as what."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from scheduler.extender.scheduling import RefusedError
from scheduler.model.pod import FunctionPod, PodError, function_pod, is_function_pod
from scheduler.webhook.ceilings import CeilingPlanner, Planning, ceilings
from scheduler.webhook.json_patch import patch
from scheduler.webhook.mutation import PodDefaults, dressed, replaced
from scheduler.webhook.wire import AdmissionRequest, AdmissionResponse, Status, check_pod

log = structlog.get_logger(__name__)

_REASONS = {403: "Forbidden", 422: "Invalid", 503: "ServiceUnavailable"}


class DeniedError(Exception):
    """The pod is not admitted: ``code`` as in HTTP, and a sentence for its creator."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Admits pods.

    A pod of ours is denied, not passed on as it is, when it cannot be dressed: without its limits
    it would have a whole GPU. That holds, too, while the service is not ready: the answer is then
    a denial with 503 rather than an HTTP error, because a denial holds whatever the webhook's
    ``failurePolicy``, and because its message reaches the pod's creator. Controllers try again by
    themselves. All other pods pass, ready or not.

    Attributes:
        planning: the candidates for a pod; raises `RefusedError` where there are none.
        unreadiness: why nothing can be planned now; empty when it can.
        clock: seconds since the epoch, as ``planning`` has it.
        headroom_ratio: see `ceilings`.
        wardrobe: what is the same for all pods.
    """

    planning: Planning
    unreadiness: Callable[[], str]
    clock: Callable[[], float]
    headroom_ratio: float
    wardrobe: PodDefaults

    def admit(self, request: AdmissionRequest) -> AdmissionResponse:
        """The answer to one request.

        Raises:
            ValidationError: pydantic's; the object is no Pod, though it is said to be one.
        """
        raw = request.object
        if not request.creates_pod() or raw is None or not _is_ours(raw):
            return AdmissionResponse(uid=request.uid, allowed=True)
        check_pod(raw)
        try:
            return self._admit(request, raw)
        except DeniedError as error:
            log.warning("pod denied", pod=_name(request, raw), code=error.code, error=str(error))
            status = Status(code=error.code, reason=_REASONS[error.code], message=str(error))
            return AdmissionResponse(uid=request.uid, allowed=False, status=status)

    def _admit(self, request: AdmissionRequest, raw: Mapping[str, Any]) -> AdmissionResponse:
        pod = _read(request, raw)
        most = self._ceilings(pod)
        after = dressed(raw, pod.container, most, self.wardrobe)
        operations = list(patch(raw, after))
        if not operations:
            return AdmissionResponse(uid=request.uid, allowed=True)
        return AdmissionResponse(
            uid=request.uid,
            allowed=True,
            patch_type="JSONPatch",
            patch=b64encode(json.dumps(operations).encode()).decode(),
            warnings=_warnings(pod, most, replaced(raw, after, pod.container)) or None,
        )

    def _ceilings(self, pod: FunctionPod) -> CeilingPlanner:
        if why := self.unreadiness():
            raise DeniedError(503, f"esg-scheduler is not ready: {why}; try again")
        try:
            return ceilings(
                pod, self.planning, now=self.clock(), headroom_ratio=self.headroom_ratio
            )
        except RefusedError as error:
            raise DeniedError(403, str(error)) from None


def _is_ours(raw: Mapping[str, Any]) -> bool:
    metadata = raw.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return isinstance(labels, Mapping) and is_function_pod(raw)


def _read(request: AdmissionRequest, raw: Mapping[str, Any]) -> FunctionPod:
    metadata = {**(raw.get("metadata") or {})}
    if request.namespace:
        # A pod made by a controller names its namespace in the request alone.
        metadata["namespace"] = request.namespace
    try:
        pod = function_pod({**raw, "metadata": metadata})
    except PodError as error:
        raise DeniedError(422, str(error)) from None
    _refuse_privileged(raw["spec"])
    return pod


def _refuse_privileged(spec: Mapping[str, Any]) -> None:
    """Whichever container it is: a runtime gives a privileged one all devices of the node.

    Capabilities are let be. They give no device, and which of them a namespace lets its pods have
    is for Pod Security to say.
    """
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        if (container.get("securityContext") or {}).get("privileged"):
            raise DeniedError(
                403,
                f"container {container.get('name')!r} is privileged: it would see every GPU of its "
                "node, whatever the pod was granted; take securityContext.privileged away",
            )


def _warnings(pod: FunctionPod, most: CeilingPlanner, replaced_names: list[str]) -> tuple[str, ...]:
    told = []
    if not most.feasible:
        told.append(f"the SLO of {pod.workflow or pod.stage} cannot be met from stage {pod.stage}")
    if replaced_names:
        told.append(f"esg-scheduler sets these itself: {', '.join(replaced_names)}")
    return tuple(told)


def _name(request: AdmissionRequest, raw: Mapping[str, Any]) -> str:
    metadata = raw["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{request.namespace}/{name}"
