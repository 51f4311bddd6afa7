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
    """Sum the requests of the pod's containers; an invalid quantity counts as 0.

    An init container that requests more than all containers together counts instead of them, as in
    Kubernetes, except for KEP-753: a sidecar is treated like any init container.
    """
    spec = raw.get("spec") or {}

    def of(container: Mapping[str, Any]) -> int:
        requests = (container.get("resources") or {}).get("requests") or {}
        try:
            return read(requests.get(resource, 0))
        except QuantityError:
            return 0

    total = sum(of(container) for container in spec.get("containers") or [])
    return max([total, *map(of, spec.get("initContainers") or [])])
