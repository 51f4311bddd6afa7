"""One holder that the gateway creates or follows: its object, and its state."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from scheduler.dispatch.slices import SliceStart
from scheduler.gateway.discovery.holder_pods import LABEL_MANAGED_BY, MANAGED_BY, HolderPod
from scheduler.gateway.scaling.pool_pod import name_suffix
from scheduler.model import names
from scheduler.model.function_server import FunctionServer

GRACE_S = 30  # Kubernetes' default; it has to cover the longest run
_MEMORY = "16Mi"
_USER = 65532
# As the first process of a container it would ignore SIGTERM without the trap, too; with a process
# namespace of the pod it is not the first one.
_COMMAND = ["sh", "-c", "trap '' TERM; exec sleep infinity"]
_OF_TEMPLATES = (  # where the members of the slice may be
    "affinity",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "schedulerName",
    "tolerations",
)


@dataclass(slots=True, eq=False)
class SliceHolder:
    """A holder between the decision to create it and its end.

    Attributes:
        namespace: namespace of the pod.
        name: name of the pod, without the namespace.
        start: slice that it was created for; None: another process has created it.
        since_ms: time of the decision, or of the pod's adoption.
        pod: pod as it was last reported; None before the first report.
        confirmed_s: time from which the API server was last asked and knew the pod as one that
            nobody has deleted; of the clock of leases.
        is_ending: true if its slice gets no further batch, and the pod is deleted after the last.
        is_proven: true once its slice has been open.
        task: task of the pod's creation or deletion.
    """

    namespace: str
    name: str
    start: SliceStart | None
    since_ms: float
    pod: HolderPod | None = None
    confirmed_s: float = -inf
    is_ending: bool = False
    is_proven: bool = False
    task: "asyncio.Task[None] | None" = None

    @property
    def uid(self) -> str:
        """UID of the pod; empty before its first report."""
        return "" if self.pod is None else self.pod.uid

    @property
    def gpu_model(self) -> str:
        """Model of the GPU, or the one that is asked for; empty: any."""
        if self.pod is not None:
            return self.pod.gpu_model
        return "" if self.start is None else self.start.gpu_model

    @property
    def problem(self) -> str:
        """Reason why its slice must not be used; empty if it may be, as far as is known."""
        return "" if self.pod is None else self.pod.problem

    @property
    def is_live(self) -> bool:
        """True if it holds its slice, as far as is known."""
        return self.pod is not None and self.pod.is_running and not self.is_ending


def new_holder_name() -> str:
    """Return the name of a new holder."""
    return f"esg-slice-{name_suffix()}"


def holder_object(
    name: str,
    start: SliceStart,
    servers: Sequence[FunctionServer],
    *,
    image: str,
    scheduler_name: str,
) -> dict[str, Any]:
    """Return the Pod that holds a slice.

    Args:
        name: name of the pod.
        start: slice to hold.
        servers: pooled servers of the namespace, the oldest first, all of one group of gateways.
            The pod goes where the pods of the oldest one's template may go, is of their group, and
            is deleted with the last of them.
        image: image with a shell.
        scheduler_name: scheduler of the pod, unless the template names one.
    """
    template = (servers[0].spec.template or {}).get("spec") or {}
    placement = {key: template[key] for key in _OF_TEMPLATES if template.get(key)}
    if scheduler_name:
        placement.setdefault("schedulerName", scheduler_name)
    amounts = {
        "cpu": str(start.cpus),
        "memory": _MEMORY,
        names.RESOURCE_GPU_PERCENT: str(start.percent),
    }
    owners: list[dict[str, Any]] = [server.owner for server in servers]
    owners[0] = {**owners[0], "controller": True}  # so that `kubectl drain` evicts the pod
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {
            names.LABEL_POOL: names.POOL_HOLDER,
            LABEL_MANAGED_BY: MANAGED_BY,
            **servers[0].metadata.group_labels,
        },
        "ownerReferences": owners,
    }
    if start.gpu_model:
        metadata["annotations"] = {names.ANNOTATION_GPU_MODEL: start.gpu_model}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            **placement,
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "holder",
                    "image": image,
                    "command": _COMMAND,
                    "resources": {"requests": amounts, "limits": amounts},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
