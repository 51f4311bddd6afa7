"""One pod that the gateway creates: its object, and what the API server reports of it."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from scheduler.dispatch.pods import FunctionKey, PodStart, Share
from scheduler.dispatch.share_classes import profiled_rows
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.model import names
from scheduler.model.documents import FunctionProfile, GridPoint, ProfiledConfiguration
from scheduler.model.function_server import FunctionServer
from scheduler.model.pod import configuration_of, has_ended
from scheduler.model.pod_fields import PodError
from scheduler.model.pod_template import pod_of_template

PROVEN_MS = 60_000.0  # the share of a pod that has served for so long works
WARM_UP_RATIO = 0.25  # of the cold start, for the first batch
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes': no vowels, so no words
_SUFFIX_LENGTH = 8
_WAITING_FAILURES = frozenset({"InvalidImageName", "CreateContainerConfigError"})


@dataclass(slots=True, eq=False)
class PoolPod:
    """A pod between the decision to start it and its end.

    Attributes:
        name: ``namespace/name``.
        function: key of the function that the pod serves.
        share: share that the pod was created for; the granted one may be on another GPU model.
        since_ms: time of the decision, or of the pod's adoption.
        pooled: true if the pod is a member of a pool.
        is_adopted: true if another process has created the pod.
        uid: UID of the pod; empty until the API server reports it.
        seen_ms: time of the API server's first report.
        bound_ms: time from which the pod was seen with a node.
        serving_ms: time from which the pod takes batches.
        unready_ms: time from which it was seen to take none; None while it does.
        unschedulable: reason of the scheduler why the pod has no node; empty without one.
        server_pod: pod as it was discovered, while it has an address.
        is_ending: true if the pod gets no further batch, and will be deleted.
        is_proven: true once `proves_share` has returned true.
        task: task of the pod's creation or warm-up.
    """

    name: str
    function: FunctionKey
    share: Share
    since_ms: float
    pooled: bool = False
    is_adopted: bool = False
    uid: str = ""
    seen_ms: float | None = None
    bound_ms: float | None = None
    serving_ms: float | None = None
    unready_ms: float | None = None
    unschedulable: str = ""
    server_pod: ServerPod | None = None
    is_ending: bool = False
    is_proven: bool = False
    task: "asyncio.Task[None] | None" = None

    @property
    def start(self) -> PodStart:
        """The decision that it follows from."""
        return PodStart(self.function, self.share, self.pooled)

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        namespace, _, name = self.name.partition("/")
        return namespace, name

    def proves_share(self, now_ms: float) -> bool:
        """Return true once, when it has served for long enough.

        Later it proves nothing: the cluster may have become full since it started.
        """
        if self.is_proven or self.serving_ms is None or now_ms - self.serving_ms < PROVEN_MS:
            return False
        self.is_proven = True
        return True

    def note_readiness(self, now_ms: float, *, is_ready: bool) -> None:
        """Note whether it takes batches, as Kubernetes and its model server say."""
        if is_ready:
            self.unready_ms = None
        elif self.unready_ms is None:
            self.unready_ms = now_ms

    def stop_task(self) -> None:
        """End its creation or warm-up."""
        if self.task is not None:
            self.task.cancel()
            self.task = None


def new_name(server: FunctionServer) -> str:
    """Return ``namespace/name`` of a new pod of a server."""
    return f"{server.key[0]}/{server.metadata.name}-{name_suffix()}"


def name_suffix() -> str:
    """Return the random end of the name of a new pod."""
    return "".join(secrets.choice(_SUFFIX) for _ in range(_SUFFIX_LENGTH))


def largest_row(profile: FunctionProfile, share: Share) -> ProfiledConfiguration:
    """Return the profile's row of the largest batch that a share runs."""
    return profiled_rows(profile, share)[1][-1]


def warm_up_row(profile: FunctionProfile, share: Share) -> ProfiledConfiguration:
    """Return the profile's row of a pod's first batch, which delays its first request.

    It has as many rows as run in a part of the cold start. The largest batch of a small share can
    take several times the whole of it.
    """
    rows = profiled_rows(profile, share)[1]
    limit_ms = WARM_UP_RATIO * profile.spec.cold_start_ms or inf  # 0: it was not measured
    short = [row for row in rows if row.latency_ms <= limit_ms]
    return max(short, key=lambda row: row.batch, default=rows[0])


def pool_pod_object(
    name: str, server: FunctionServer, row: GridPoint, scheduler_name: str, *, pooled: bool
) -> dict[str, Any]:
    """Return the Pod for a share.

    Args:
        name: name of the pod, without the namespace.
        server: server of the pod, with a template.
        row: only configuration that the pod may be granted.
        scheduler_name: scheduler of the pod, unless the template names one.
        pooled: true if the pod is to run in a slice of its pool.
    """
    assert server.spec.template is not None  # noqa: S101 - others start no pods
    point = {"batch": row.batch, "cpu": row.cpu, "gpuPercent": row.gpu_percent}
    return pod_of_template(
        server.spec.template,
        name=name,
        labels={
            names.LABEL_FUNCTION: server.spec.function,
            names.LABEL_GATEWAY_POOL: server.metadata.name,
            **({names.LABEL_POOL: names.POOL_MEMBER} if pooled else {}),
            **server.metadata.group_labels,
        },
        annotations={names.ANNOTATION_CONFIGURATION: json.dumps(point)},
        owner=server.owner,
        scheduler_name=scheduler_name,
    )


def share_of(raw: Mapping[str, Any], profile: FunctionProfile) -> Share | None:
    """Return the share that a pod was created for; None if its profile has it no more."""
    try:
        point = configuration_of(raw)
    except PodError:
        return None
    if point is None:
        return None
    for gpu in profile.spec.gpus:
        for row in gpu.configurations:
            if (row.batch, row.cpu, row.gpu_percent) == (point.batch, point.cpu, point.gpu_percent):
                return Share(gpu.model, row.cpu, row.gpu_percent, row.memory_mib)
    return None


def failure_of(raw: Mapping[str, Any]) -> str:
    """Return why a pod will not run any more, or never; empty if it may."""
    status = raw.get("status") or {}
    if has_ended(raw):
        parts = [status.get("phase"), status.get("reason"), status.get("message")]
        return "it has ended: " + ": ".join(str(part) for part in parts if part)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        if reason in _WAITING_FAILURES or reason.endswith("BackOff"):
            return ": ".join(part for part in (reason, waiting.get("message")) if part)
    return ""
