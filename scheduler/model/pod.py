"""A function pod: what its labels, annotations and resources ask, and what it was granted."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import from_json

from scheduler.model import names
from scheduler.model.quantity import QuantityError, milli, whole
from scheduler.model.quoting import listed, quoted

QUEUED_MAX = 1_000_000
RATE_MAX = 1e9
CPU_MAX = 1024  # vCPUs of one configuration, as the profiles allow
CPU_MILLI_MAX = 10**12  # more than any node has; the sum over all pods still fits a machine word
PERCENT_MAX = 100  # of one GPU
REQUESTED_PERCENT_MAX = 10**6  # more than any node has; a node's sum still is a quantity
LABEL_MAX = 63  # characters of a label's value, by Kubernetes
_RATE = re.compile(r"(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,12})?(?:Z|[+-]\d\d:\d\d)", re.ASCII
)
_MEMORY = re.compile(r"0=(?P<mib>[1-9]\d{0,8})M", re.ASCII)
_TERMINAL = frozenset({"Succeeded", "Failed"})


class PodError(ValueError):
    """A label or annotation that cannot be used; the message names it and says how to mend it."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a bound pod holds on one GPU: the annotations that its Binding wrote."""

    gpu_uuid: str
    gpu_percent: int
    memory_mib: int
    batch: int
    plan: Mapping[str, Any]

    @property
    def cpu(self) -> int:
        """The vCPUs that the plan gives; 0 where it says nothing that can be."""
        cpu = self.plan.get("cpu")
        return cpu if type(cpu) is int and 0 <= cpu <= CPU_MAX else 0


@dataclass(frozen=True, slots=True)
class FunctionPod:
    """A pod that runs one stage of a workflow, or a lone function."""

    namespace: str
    name: str
    uid: str
    workflow: str | None  # None: a lone function, a workflow of one stage
    stage: str  # the function's name where there is no workflow
    request: str | None
    container: int  # index of the container that gets the GPU
    deadline: float | None  # seconds since the epoch
    arrival: float | None  # seconds since the epoch
    queued: int | None
    rate: float | None  # requests a second
    cpu_ceiling_milli: int | None  # what that container requests
    cpu_beside_milli: int  # what the pod's other containers request
    gpu_percent_ceiling: int | None
    priority: int

    def slack_ms(self, slo_ms: float | None, now: float) -> float | None:
        """Time left until the deadline at ``now`` (seconds since the epoch), in ms.

        None when neither a deadline nor an arrival is known: the budget is then the workflow's own.
        """
        if self.deadline is not None:
            return (self.deadline - now) * 1000
        if self.arrival is not None and slo_ms is not None:
            return (self.arrival - now) * 1000 + slo_ms
        return None


def is_function_pod(raw: Mapping[str, Any]) -> bool:
    """Whether the pod carries our labels: a workflow's name, or a function's."""
    labels = (raw.get("metadata") or {}).get("labels") or {}
    return names.LABEL_WORKFLOW in labels or names.LABEL_FUNCTION in labels


def function_pod(raw: Mapping[str, Any]) -> FunctionPod:
    """A Pod object of the Kubernetes API, which `is_function_pod`, as a `FunctionPod`.

    Raises:
        PodError: a label, annotation or quantity that this scheduler reads is malformed.
    """
    metadata = raw.get("metadata") or {}
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    spec = raw.get("spec") or {}
    workflow = _label(labels, names.LABEL_WORKFLOW)
    stage = _label(labels, names.LABEL_STAGE)
    if workflow is not None and stage is None:
        raise PodError(f"label {names.LABEL_STAGE} is missing; it names the stage of {workflow!r}")
    if workflow is None:
        stage = _label(labels, names.LABEL_FUNCTION)
        if stage is None:
            raise PodError(
                f"label {names.LABEL_FUNCTION} is empty; it names a FunctionProfile"
                if names.LABEL_FUNCTION in labels
                else f"label {names.LABEL_WORKFLOW} is empty; it names a Workflow"
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
        deadline=_timestamp(annotations, names.ANNOTATION_DEADLINE),
        arrival=_timestamp(annotations, names.ANNOTATION_ARRIVAL),
        queued=_queued(annotations),
        rate=_rate(annotations),
        cpu_ceiling_milli=(cpu := _ceiling(resources, "cpu", milli, CPU_MILLI_MAX)),
        cpu_beside_milli=max(0, requested_cpu_milli(raw) - (cpu or 0)),
        gpu_percent_ceiling=_ceiling(resources, names.RESOURCE_GPU_PERCENT, whole, PERCENT_MAX),
        priority=spec.get("priority") or 0,
    )


def grant_of(raw: Mapping[str, Any]) -> Grant | None:
    """What the pod's annotations say it was granted; None where it was granted nothing.

    Raises:
        PodError: there is a grant, and it cannot be read.
    """
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    gpu = annotations.get(names.ANNOTATION_GPU)
    if gpu is None:
        return None
    memory = annotations.get(names.ANNOTATION_GPU_MEMORY, "")
    match = _MEMORY.fullmatch(memory)
    if match is None:
        raise PodError(
            f"annotation {names.ANNOTATION_GPU_MEMORY}: {quoted(memory)} is not of the form 0=4096M"
        )
    try:
        # json.loads would take NaN and lone surrogates, which no answer of ours can carry.
        plan = from_json(annotations.get(names.ANNOTATION_PLAN, "{}"), allow_inf_nan=False)
    except ValueError:
        plan = {}
    return Grant(
        gpu_uuid=gpu,
        gpu_percent=_integer(annotations, names.ANNOTATION_GPU_PERCENT, 1, 100),
        memory_mib=int(match["mib"]),
        batch=_integer(annotations, names.ANNOTATION_BATCH, 1, QUEUED_MAX),
        plan=plan if isinstance(plan, dict) else {},
    )


def grant_annotations(grant: Grant) -> dict[str, str]:
    """The annotations that put ``grant`` on a pod; `grant_of` reads them back."""
    return {
        names.ANNOTATION_GPU: grant.gpu_uuid,
        names.ANNOTATION_GPU_PERCENT: str(grant.gpu_percent),
        names.ANNOTATION_GPU_MEMORY: f"0={grant.memory_mib}M",
        names.ANNOTATION_BATCH: str(grant.batch),
        names.ANNOTATION_PLAN: json.dumps(grant.plan, separators=(",", ":"), sort_keys=True),
    }


def requested_cpu_milli(raw: Mapping[str, Any]) -> int:
    """The vCPUs that the pod requests, in thousandths, as Kubernetes' own accounting counts them.

    Never more than `CPU_MILLI_MAX`.
    """
    return min(_requested(raw, "cpu", milli), CPU_MILLI_MAX)


def requested_gpu_percent(raw: Mapping[str, Any]) -> int:
    """The percent of GPUs that the pod requests, as Kubernetes' own accounting counts them.

    That is the ceiling of what it can be granted. Never more than `REQUESTED_PERCENT_MAX`.
    """
    return min(_requested(raw, names.RESOURCE_GPU_PERCENT, whole), REQUESTED_PERCENT_MAX)


def has_ended(raw: Mapping[str, Any]) -> bool:
    """Whether the pod's containers have ended: the phase says so.

    A pod that is being deleted has not ended for that; its processes may still hold the GPU.
    """
    return ((raw.get("status") or {}).get("phase")) in _TERMINAL


def timestamp(text: object) -> float:
    """An RFC 3339 time as seconds since the epoch.

    Raises:
        ValueError: it is not one, or has no zone.
    """
    if not isinstance(text, str) or not _RFC_3339.fullmatch(text.upper()):
        raise ValueError("not a time")
    return datetime.fromisoformat(text.upper()).timestamp()


def _label(labels: Mapping[str, Any], key: str) -> str | None:
    value = labels.get(key)
    if not isinstance(value, str) or not value:
        return None
    if len(value) > LABEL_MAX:
        raise PodError(f"label {key}: {quoted(value)} is longer than {LABEL_MAX} characters")
    return value


def _container(containers: list[Mapping[str, Any]], chosen: object) -> int:
    if chosen is None:
        return 0
    known = [container.get("name") for container in containers]
    if chosen not in known:
        raise PodError(
            f"annotation {names.ANNOTATION_CONTAINER}: {quoted(chosen)} is no container of the pod "
            f"(it has: {listed([str(name) for name in known])})"
        )
    return known.index(chosen)


def _timestamp(annotations: Mapping[str, Any], key: str) -> float | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return timestamp(text)
    except ValueError:
        raise PodError(
            f"annotation {key}: {quoted(text)} is no RFC 3339 time; "
            "write it as 2026-01-31T12:00:00.250Z"
        ) from None


def _queued(annotations: Mapping[str, Any]) -> int | None:
    if names.ANNOTATION_QUEUED not in annotations:
        return None
    return _integer(annotations, names.ANNOTATION_QUEUED, 1, QUEUED_MAX)


def _rate(annotations: Mapping[str, Any]) -> float | None:
    text = annotations.get(names.ANNOTATION_RATE)
    if text is None:
        return None
    rate = float(text) if isinstance(text, str) and _RATE.fullmatch(text) else 0.0
    if not 0 < rate <= RATE_MAX:
        raise PodError(
            f"annotation {names.ANNOTATION_RATE}: {quoted(text)} must be requests a second, "
            f"above 0 and at most {RATE_MAX:.0e}"
        )
    return rate


def _integer(annotations: Mapping[str, Any], key: str, least: int, most: int) -> int:
    text = annotations.get(key)
    if (
        isinstance(text, str)
        and re.fullmatch(r"\d{1,9}", text, re.ASCII)
        and least <= int(text) <= most
    ):
        return int(text)
    raise PodError(
        f"annotation {key}: {quoted(text)} must be a whole number from {least} to {most}"
    )


def _requested(raw: Mapping[str, Any], resource: str, read: Callable[[object], int]) -> int:
    """What the pod's containers request together; what cannot be read counts as 0.

    An init container that asks for more than all containers together counts instead of them, as in
    Kubernetes' own accounting (KEP-753 aside: a sidecar is taken for an init container).
    """
    spec = raw.get("spec") or {}

    def of(container: Mapping[str, Any]) -> int:
        requests = (container.get("resources") or {}).get("requests") or {}
        try:
            return read(requests.get(resource, 0))
        except QuantityError:
            return 0

    together = sum(of(container) for container in spec.get("containers") or [])
    alone = [of(container) for container in spec.get("initContainers") or []]
    return max([together, *alone])


def _ceiling(resources: Mapping[str, Any], resource: str, read: Any, most: int) -> int | None:
    for part in ("requests", "limits"):
        quantities = resources.get(part) or {}
        if resource in quantities:
            try:
                return min(int(read(quantities[resource])), most)
            except QuantityError as error:
                raise PodError(f"resources.{part}.{resource}: {error}") from None
    return None
