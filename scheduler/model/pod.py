"""Function pods: requests in labels, annotations and resources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from scheduler.model import names
from scheduler.model.documents import GridPoint
from scheduler.model.measurement import measured_memory_mib
from scheduler.model.message_text import listed, quoted
from scheduler.model.pod_fields import (
    PodError,
    ceiling_of,
    optional_timestamp_s,
    queued_of,
    rate_rps_of,
)
from scheduler.model.pod_resources import (
    CPU_MILLI_MAX,
    requested_cpu_milli,
    requested_gpu_percent,
)
from scheduler.model.pools import PoolName, gateway_group, pool_problem, pool_role
from scheduler.model.quantity import milli, whole

CPU_MAX = 1024  # vCPUs of one configuration, as the profiles allow
PERCENT_MAX = 100  # of one GPU
LABEL_MAX = 63  # characters of a label's value in Kubernetes
SERVER_OWNERS = frozenset({"ReplicaSet", "StatefulSet", "FunctionServer"})
DAEMON_OWNERS = frozenset({"DaemonSet", "Node"})  # the kubelet's static pods belong to the Node
_GRACE_S = 30.0  # Kubernetes' default
# Until the kubelet has seen a deletion, and for the two seconds that it gives a container whose
# preStop hook has taken the whole grace period.
_KUBELET_S = 5.0
_TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class FunctionPod:
    """A pod that runs one stage of a workflow, or a function without a workflow.

    Or one that holds a slice of a GPU and runs nothing (ADR 44): its stage is empty.
    """

    namespace: str
    name: str
    uid: str
    workflow: str | None  # None: a function alone, which is a workflow of one stage
    stage: str  # without a workflow: the name of the function
    request: str | None
    container: int  # index of the container that uses the GPU
    gpu_containers: tuple[str, ...]  # its name, and that of the check of its limits
    deadline_s: float | None  # since the epoch
    arrival_s: float | None  # since the epoch
    queued: int | None
    rate_rps: float | None
    configuration: GridPoint | None  # the only one that may be granted
    cpu_ceiling_milli: int | None  # request of that container
    other_containers_cpu_milli: int  # requests of the pod's other containers
    gpu_percent_ceiling: int | None
    priority: int
    pool: str = ""  # role in its pool; empty: none
    group: str = ""  # group of gateways, which has its own pools; empty: none
    gpu_model: str = ""  # of a pod that states its share; empty: any
    memory_mib: int = 0  # GPU memory of a pod whose function is measured; 0: by its profile

    @property
    def pool_name(self) -> PoolName:
        """Return the pool whose slices it may hold or run in."""
        return PoolName(self.namespace, self.group)

    @property
    def is_holder(self) -> bool:
        """Return true if the pod holds a slice and runs no function."""
        return self.pool == names.POOL_HOLDER

    @property
    def is_member(self) -> bool:
        """Return true if the pod runs in a slice."""
        return self.pool == names.POOL_MEMBER

    @property
    def states_share(self) -> bool:
        """Return true if the pod itself says what it gets, and no profile does."""
        return self.is_holder or self.memory_mib > 0

    def slack_ms(self, slo_ms: float | None, now_s: float) -> float | None:
        """Return the time in ms from ``now_s`` (since the epoch) to the deadline.

        None if neither a deadline nor an arrival is known: the workflow's own budget applies then.
        """
        if self.deadline_s is not None:
            return (self.deadline_s - now_s) * 1000
        if self.arrival_s is not None and slo_ms is not None:
            return (self.arrival_s - now_s) * 1000 + slo_ms
        return None


def is_function_pod(raw: Mapping[str, Any]) -> bool:
    """Return true if the pod has the label of a workflow, of a function or of a pool."""
    labels = (raw.get("metadata") or {}).get("labels") or {}
    return any(
        label in labels for label in (names.LABEL_WORKFLOW, names.LABEL_FUNCTION, names.LABEL_POOL)
    )


def function_pod(raw: Mapping[str, Any]) -> FunctionPod:
    """Parse a Pod object of the Kubernetes API for which `is_function_pod` is true.

    Raises:
        PodError: a label, annotation or quantity that this scheduler reads is invalid.
    """
    if problem := pool_problem(raw):
        raise PodError(problem)
    if pool_role(raw) == names.POOL_HOLDER:
        return _holder(raw)
    memory_mib = measured_memory_mib(raw)
    metadata = raw.get("metadata") or {}
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    spec = raw.get("spec") or {}
    workflow = _label(labels, names.LABEL_WORKFLOW)
    stage = _label(labels, names.LABEL_STAGE)
    if workflow is not None and stage is None:
        raise PodError(
            f"label {names.LABEL_STAGE} is missing; set it to a stage of workflow {workflow!r}"
        )
    if workflow is None:
        stage = _label(labels, names.LABEL_FUNCTION)
        if stage is None:
            raise PodError(
                f"label {names.LABEL_FUNCTION} is empty; set it to the name of a FunctionProfile"
                if names.LABEL_FUNCTION in labels
                else f"label {names.LABEL_WORKFLOW} is empty; set it to the name of a Workflow"
            )
    containers = spec.get("containers") or []
    container = _container(containers, annotations.get(names.ANNOTATION_CONTAINER))
    resources = (containers[container].get("resources") or {}) if containers else {}
    return FunctionPod(
        namespace=metadata.get("namespace") or "default",
        name=metadata.get("name") or "",
        uid=metadata.get("uid") or "",
        workflow=workflow,
        stage=stage or "",
        request=_label(labels, names.LABEL_REQUEST),
        container=container,
        gpu_containers=_gpu_containers(spec, container),
        deadline_s=optional_timestamp_s(annotations, names.ANNOTATION_DEADLINE),
        arrival_s=optional_timestamp_s(annotations, names.ANNOTATION_ARRIVAL),
        queued=queued_of(annotations),
        rate_rps=rate_rps_of(annotations),
        configuration=configuration_of(raw),
        cpu_ceiling_milli=(cpu := ceiling_of(resources, "cpu", milli, CPU_MILLI_MAX)),
        other_containers_cpu_milli=max(0, requested_cpu_milli(raw) - (cpu or 0)),
        gpu_percent_ceiling=ceiling_of(resources, names.RESOURCE_GPU_PERCENT, whole, PERCENT_MAX),
        priority=spec.get("priority") or 0,
        pool=pool_role(raw),
        group=gateway_group(raw),
        gpu_model=_gpu_model(annotations) if memory_mib else "",
        memory_mib=memory_mib,
    )


def _gpu_model(annotations: Mapping[str, Any]) -> str:
    return str(annotations.get(names.ANNOTATION_GPU_MODEL) or "")


def _holder(raw: Mapping[str, Any]) -> FunctionPod:
    metadata = raw["metadata"]
    return FunctionPod(
        namespace=metadata.get("namespace") or "default",
        name=metadata.get("name") or "",
        uid=metadata.get("uid") or "",
        workflow=None,
        stage="",
        request=None,
        container=0,
        gpu_containers=(),
        deadline_s=None,
        arrival_s=None,
        queued=None,
        rate_rps=None,
        configuration=None,
        cpu_ceiling_milli=requested_cpu_milli(raw),
        other_containers_cpu_milli=0,
        gpu_percent_ceiling=requested_gpu_percent(raw),
        priority=(raw.get("spec") or {}).get("priority") or 0,
        pool=names.POOL_HOLDER,
        group=gateway_group(raw),
        gpu_model=_gpu_model(metadata.get("annotations") or {}),
    )


def configuration_of(raw: Mapping[str, Any]) -> GridPoint | None:
    """Return the only configuration that a pod may be granted; None: any.

    Raises:
        PodError: its annotation is invalid.
    """
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(names.ANNOTATION_CONFIGURATION)
    if text is None:
        return None
    try:
        # By alias only, like the rows of a profile.
        return GridPoint.model_validate_json(text, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = ": ".join([*map(quoted, first["loc"]), first["msg"]])
        raise PodError(
            f"annotation {names.ANNOTATION_CONFIGURATION}: {quoted(text)} is not a configuration "
            f'({problem}); write it as {{"batch": 8, "cpu": 2, "gpuPercent": 28}}'
        ) from None


def resource_claim(raw: Mapping[str, Any]) -> str:
    """Return the name of the ResourceClaim that gives a pod its GPU's folders; empty: none."""
    claims = (raw.get("spec") or {}).get("resourceClaims") or ()
    for claim in claims:
        if claim.get("name") == names.RESOURCE_CLAIM:
            return str(claim.get("resourceClaimName") or "")
    return ""


def is_daemon(raw: Mapping[str, Any]) -> bool:
    """Return true if the pod belongs to its node: it is of a DaemonSet, or static."""
    owners = (raw.get("metadata") or {}).get("ownerReferences") or []
    return any(owner.get("kind") in DAEMON_OWNERS for owner in owners)


def is_server(raw: Mapping[str, Any]) -> bool:
    """Return true if the pod serves requests until it is deleted: its controller replaces it."""
    owners = (raw.get("metadata") or {}).get("ownerReferences") or []
    return any(owner.get("kind") in SERVER_OWNERS for owner in owners)


def has_ended(raw: Mapping[str, Any]) -> bool:
    """Return true if the pod has a phase in which all its containers have ended.

    A terminating pod has not ended: its processes may still use the GPU. A kubelet writes the phase
    when no container runs any more. The pod garbage collector writes Failed without asking it.
    """
    status = raw.get("status") or {}
    if status.get("phase") not in _TERMINAL:
        return False
    return not any(
        is_running(container)
        for part in ("containerStatuses", "initContainerStatuses")  # the check uses the GPU, too
        for container in status.get(part) or ()
    )


def is_running(container_status: Mapping[str, Any]) -> bool:
    """Return true if the kubelet last reported that the container runs."""
    return (container_status.get("state") or {}).get("running") is not None


def grace_period_s(raw: Mapping[str, Any]) -> float:
    """Return how long containers of a pod may outlive its object, seconds.

    A kubelet whose pod vanishes ends the containers within the pod's grace period, or a longer one
    of an earlier deletion. The grace of 0 s of a deletion by force is not for its containers.
    """
    spec, metadata = raw.get("spec") or {}, raw.get("metadata") or {}
    own_s = spec.get("terminationGracePeriodSeconds")
    deletion_s = metadata.get("deletionGracePeriodSeconds")
    graces_s = [s for s in (own_s, deletion_s) if isinstance(s, int | float)]
    return max(0.0, *graces_s, _GRACE_S if own_s is None else 0.0) + _KUBELET_S


def _label(labels: Mapping[str, Any], key: str) -> str | None:
    value = labels.get(key)
    if not isinstance(value, str) or not value:
        return None
    if len(value) > LABEL_MAX:
        raise PodError(f"label {key}: {quoted(value)} is longer than {LABEL_MAX} characters")
    return value


def _container(containers: list[Mapping[str, Any]], name: object) -> int:
    if name is None:
        return 0
    container_names = [container.get("name") for container in containers]
    if name not in container_names:
        raise PodError(
            f"annotation {names.ANNOTATION_CONTAINER}: {quoted(name)} is not a container "
            f"of the pod (it has: {listed([str(container) for container in container_names])})"
        )
    return container_names.index(name)


def _gpu_containers(spec: Mapping[str, Any], container: int) -> tuple[str, ...]:
    containers = spec.get("containers") or []
    init_names = {init.get("name") for init in spec.get("initContainers") or []}
    main = [str(containers[container].get("name") or "")] if containers else []
    return tuple(main + [name for name in [names.CONTAINER_MPS_CHECK] if name in init_names])
