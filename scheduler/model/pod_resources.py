"""Resources that a pod requests, as Kubernetes counts them."""

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.model import names
from scheduler.model.quantity import QuantityError, milli, whole

CPU_MILLI_MAX = 10**12  # more than any node has; the sum over all pods fits a machine word
REQUESTED_PERCENT_MAX = 10**6  # more than any node has; a node's sum is a valid quantity


def requested_cpu_milli(raw: Mapping[str, Any]) -> int:
    """Return the pod's vCPU requests in thousandths, counted as Kubernetes does.

    The result is at most `CPU_MILLI_MAX`.
    """
    return min(_requested(raw, "cpu", milli), CPU_MILLI_MAX)


def requested_gpu_percent(raw: Mapping[str, Any]) -> int:
    """Return the pod's requested percent of GPUs, counted as Kubernetes does.

    It is the upper limit of a grant. The result is at most `REQUESTED_PERCENT_MAX`.
    """
    return min(_requested(raw, names.RESOURCE_GPU_PERCENT, whole), REQUESTED_PERCENT_MAX)


def is_whole_gpu(resource: str) -> bool:
    """Return true if a device plugin counts GPUs by this resource, whole or as MIG slices."""
    return resource.startswith(names.RESOURCES_WHOLE_GPU)


def requests_whole_gpu(raw: Mapping[str, Any]) -> bool:
    """Return true if a container of the pod requests a GPU from a device plugin."""
    spec = raw.get("spec") or {}
    return any(
        is_whole_gpu(resource)
        for part in ("containers", "initContainers")
        for container in spec.get(part) or []
        for resource in (container.get("resources") or {}).get("requests") or {}
    )


def _requested(raw: Mapping[str, Any], resource: str, read: Callable[[object], int]) -> int:
    """Return the pod's request as ``PodRequests`` of Kubernetes does; an invalid quantity is 0.

    Containers and sidecars run together. Init containers run one after the other, each with the
    sidecars before it; the largest of these sums counts (KEP-753). A request of the whole pod
    replaces that of its containers (KEP-2837), and its overhead is added.

    Source: k8s.io/component-helpers/resource/helpers.go
    """
    spec = raw.get("spec") or {}

    def quantity(requests: Mapping[str, Any] | None) -> int:
        if not requests or resource not in requests:
            return 0
        try:
            return read(requests[resource])
        except QuantityError:
            return 0

    def of(holder: Mapping[str, Any]) -> int:
        return quantity((holder.get("resources") or {}).get("requests"))

    largest = sidecars = 0
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars += of(container)
            largest = max(largest, sidecars)
        else:
            largest = max(largest, sidecars + of(container))
    together = sidecars + sum(map(of, spec.get("containers") or []))
    return (of(spec) or max(together, largest)) + quantity(spec.get("overhead"))
