"""The pods of this node: their grants and requests."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.cluster.api import Raw
from scheduler.model.grant import Grant, grant_of
from scheduler.model.names import (
    LABEL_FUNCTION,
    LABEL_STAGE,
    LABEL_WORKFLOW,
    POOL_HOLDER,
    POOL_MEMBER,
)
from scheduler.model.pod import has_ended, resource_claim
from scheduler.model.pod_fields import PodError
from scheduler.model.pod_resources import requested_gpu_percent, requests_whole_gpu

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Request of a live pod of this node in Kubernetes' own accounting, granted or not."""

    gpu_uuid: str  # its granted GPU; empty: none
    percent: int  # of a GPU; its request, which may exceed its grant


class NodePods:
    """The live pods of this node; also their handler.

    Attributes:
        granted: pods with shares, by UID; no holders of slices, which have no process on a GPU.
        whole_gpu: names of pods that request whole GPUs of a device plugin, by UID.
        is_complete: true if all pods have been reported.

    Args:
        changed: function that is called after each change.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self.granted: dict[str, GrantedPod] = {}
        self.whole_gpu: dict[str, str] = {}
        self.is_complete = False
        self._requests: dict[str, PodRequest] = {}

    def requests(self) -> tuple[PodRequest, ...]:
        """List the requests of pods that request a share."""
        return tuple(self._requests.values())

    def owner_of(self, namespace: str, claim: str) -> GrantedPod | None:
        """Return the granted pod of a resource claim; None: it is not known, or has ended."""
        of_claim = (
            pod
            for pod in self.granted.values()
            if (pod.namespace, pod.resource_claim) == (namespace, claim)
        )
        return next(of_claim, None)

    def replace(self, items: Iterable[Raw]) -> None:
        """Set all pods of the node."""
        self.granted.clear()
        self.whole_gpu.clear()
        self._requests.clear()
        for item in items:
            self._add(item)
        self.is_complete = True
        self._changed()

    def upsert(self, item: Raw) -> None:
        """Add or update a pod."""
        self._remove(item)
        self._add(item)
        self._changed()

    def delete(self, item: Raw) -> None:
        """Delete a pod."""
        self._remove(item)
        self._changed()

    def _add(self, item: Raw) -> None:
        if has_ended(item):
            return
        metadata = item["metadata"]
        if requests_whole_gpu(item):
            self.whole_gpu[metadata["uid"]] = f"{metadata.get('namespace')}/{metadata['name']}"
        grant = _grant(item)
        if percent := requested_gpu_percent(item):
            self._requests[metadata["uid"]] = PodRequest(grant.gpu_uuid if grant else "", percent)
        if grant is not None and grant.pool != POOL_HOLDER:
            self.granted[metadata["uid"]] = GrantedPod(
                metadata["uid"],
                metadata.get("namespace") or "default",
                metadata["name"],
                grant.gpu_uuid,
                grant.gpu_percent,
                grant.memory_mib,
                *_stage(metadata.get("labels") or {}),
                resource_claim(item),
                is_member=grant.pool == POOL_MEMBER,
            )

    def _remove(self, item: Raw) -> None:
        uid = item["metadata"]["uid"]
        self.granted.pop(uid, None)
        self.whole_gpu.pop(uid, None)
        self._requests.pop(uid, None)


def _stage(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return workflow and stage; a function without a workflow is its own stage."""
    stage = labels.get(LABEL_STAGE) or labels.get(LABEL_FUNCTION) or ""
    return labels.get(LABEL_WORKFLOW) or "", stage


def _grant(pod: Raw) -> Grant | None:
    try:
        return grant_of(pod)
    except PodError as error:
        log.warning("grant cannot be read", pod=pod["metadata"]["name"], problem=str(error))
        return None
