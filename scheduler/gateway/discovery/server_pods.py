"""Pods of model servers: their address, readiness and share of a GPU, from the Pod object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from scheduler.dispatch.pods import FunctionKey, Share
from scheduler.gateway.discovery.holder_pods import is_member
from scheduler.model.documents import FunctionProfile
from scheduler.model.function_server import FunctionServer, ServerProtocol
from scheduler.model.grant import grant_of
from scheduler.model.message_text import listed
from scheduler.model.pod import CPU_MAX, PERCENT_MAX, has_ended
from scheduler.model.pod_fields import PodError
from scheduler.model.pod_resources import requested_cpu_milli

WHOLE_MEMORY_MIB = 1_048_576  # more than any GPU has
POD_STATES = ("starting", "ready", "draining")


class PodServer(NamedTuple):
    """Model server of a pod, as a connection depends on it.

    Attributes:
        protocol: protocol of the model server.
        port: port of the model server.
        model: name of the model at the server.
        slots: batches that the pod may have at the same time.
        of_template: true if the gateway creates and ends the server's pods.
    """

    protocol: ServerProtocol
    port: int
    model: str
    slots: int
    of_template: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPod:
    """A pod with an address that serves a function.

    Attributes:
        name: ``namespace/name``.
        uid: UID of the pod: a StatefulSet's next pod has the same name.
        function: key of the function that the pod serves.
        server: model server of the pod.
        host: IP address.
        gpu_model, cpu, gpu_percent, memory_mib: share of the pod.
        gpu: UUID of the pod's GPU; empty without a grant.
        ready: true if the pod's condition Ready is true.
        draining: true if the pod is being deleted.
        pooled: true if the pod is a member of a pool: its share is of the slice that
            the pool holds on the GPU, and only while a batch runs.
    """

    name: str
    uid: str
    function: FunctionKey
    server: PodServer
    host: str
    gpu_model: str
    cpu: int
    gpu_percent: int
    memory_mib: int
    gpu: str
    node: str
    ready: bool
    draining: bool
    pooled: bool = False

    @property
    def share(self) -> Share:
        """Its share, as decisions use it."""
        return Share(self.gpu_model, self.cpu, self.gpu_percent, self.memory_mib)

    @property
    def state(self) -> str:
        """Return one of `POD_STATES`; a pod that is not ready any more counts as starting."""
        return "draining" if self.draining else "ready" if self.ready else "starting"

    @property
    def is_granted(self) -> bool:
        """True if this scheduler placed it; otherwise it counts as on a whole GPU."""
        return bool(self.gpu)


def server_pod(
    raw: Mapping[str, Any], server: FunctionServer, profile: FunctionProfile
) -> ServerPod | None:
    """Read a pod that ``server`` selects; None while it has no address, or after its end.

    Raises:
        PodError: it does not declare the server's port, or its share cannot be read.
    """
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    host = status.get("podIP")
    if not host or has_ended(raw):
        return None
    if server.spec.template is None and server.spec.port not in _declared_ports(spec):
        # The author of a FunctionServer need not be the pod's: of the pod, and of its node if it
        # uses the node's network, he reaches by the gateway only what the pod's author serves.
        raise PodError(
            f"none of its containers declares TCP port {server.spec.port}, which FunctionServer "
            f"{server.metadata.name} has; add it to the container's ports, or correct the "
            "FunctionServer"
        )
    grant = grant_of(raw)
    if grant is not None:
        model = grant.plan.get("gpu_model")
        gpu_model = model if isinstance(model, str) and model else _only_model(profile)
        cpu = grant.cpu or _requested_cpu(raw)
        percent, memory_mib, gpu = grant.gpu_percent, grant.memory_mib, grant.gpu_uuid
    else:
        gpu_model, cpu, gpu = _only_model(profile), _requested_cpu(raw), ""
        percent, memory_mib = PERCENT_MAX, WHOLE_MEMORY_MIB
    return ServerPod(
        name=f"{metadata['namespace']}/{metadata['name']}",
        uid=metadata.get("uid") or "",
        function=server.function_key,
        server=pod_server(server),
        host=host,
        gpu_model=gpu_model,
        cpu=cpu,
        gpu_percent=percent,
        memory_mib=memory_mib,
        gpu=gpu,
        node=spec.get("nodeName") or "",
        ready=is_ready(status),
        draining=bool(metadata.get("deletionTimestamp")),
        pooled=is_member(raw),
    )


def pod_server(server: FunctionServer) -> PodServer:
    """Return the model server that the pods of a FunctionServer have."""
    spec = server.spec
    return PodServer(spec.protocol, spec.port, server.model, spec.slots, spec.template is not None)


def _declared_ports(spec: Mapping[str, Any]) -> set[int]:
    return {
        port["containerPort"]
        for part in ("containers", "initContainers")
        for container in spec.get(part) or ()
        for port in container.get("ports") or ()
        if port.get("protocol", "TCP") == "TCP"
    }


def is_ready(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _requested_cpu(raw: Mapping[str, Any]) -> int:
    """Return the pod's whole vCPUs; without a request it may use all of its node."""
    milli = requested_cpu_milli(raw)
    return CPU_MAX if not milli else min(max(1, milli // 1000), CPU_MAX)


def _only_model(profile: FunctionProfile) -> str:
    models = [gpu.model for gpu in profile.spec.gpus]
    if len(models) > 1:
        raise PodError(
            f"its GPU model is unknown, and FunctionProfile {profile.metadata.name} has several "
            f"({listed(models)}); have this scheduler place the pod (label the pod with its "
            "workflow and stage, or its function), or give the server a profile of one model"
        )
    return models[0]
