"""Pools: pods that hold a slice of a GPU for others, and pods that run in one (ADRs 44 and 59)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from scheduler.model import names
from scheduler.model.message_text import quoted
from scheduler.model.pod_resources import requested_cpu_milli, requested_gpu_percent

_ROLES = ("", names.POOL_HOLDER, names.POOL_MEMBER)
_FUNCTION_LABELS = (names.LABEL_WORKFLOW, names.LABEL_FUNCTION)
_SHARE = names.RESOURCE_GPU_PERCENT
_PERCENT_MAX = 100  # of one GPU
_CPU_MIN_MILLI = 1000


class PoolName(NamedTuple):
    """Name of a pool: the pods whose batches one dispatcher begins.

    Attributes:
        namespace: namespace of the pool.
        group: group of gateways that serves it; empty: the gateways without a group.
    """

    namespace: str
    group: str = ""

    def __str__(self) -> str:
        """Return the pool as messages call it."""
        of_group = f"group {self.group} in " if self.group else ""
        return f"the pool of {of_group}namespace {self.namespace}"


def gateway_group(raw: Mapping[str, Any]) -> str:
    """Return the pod's label of a group of gateways; empty: it is in none."""
    labels = (raw.get("metadata") or {}).get("labels") or {}
    return str(labels.get(names.LABEL_GATEWAY_GROUP) or "")


def pool_role(raw: Mapping[str, Any]) -> str:
    """Return the pod's label of a pool, valid or not; empty: it is in none."""
    labels = (raw.get("metadata") or {}).get("labels") or {}
    return str(labels.get(names.LABEL_POOL) or "")


def pool_problem(raw: Mapping[str, Any]) -> str | None:
    """Return why a pod cannot be in a pool; None if it can, or is in none."""
    role = pool_role(raw)
    where = f"label {names.LABEL_POOL}"
    if role not in _ROLES:
        return (
            f"{where}: {quoted(role)} must be {names.POOL_HOLDER} or {names.POOL_MEMBER}; "
            "or remove it"
        )
    if role == names.POOL_HOLDER:
        return _holder_problem(raw, f"{where}: a {role}")
    if role == names.POOL_MEMBER:
        return _member_problem(raw, f"{where}: a {role}")
    return None


def _holder_problem(raw: Mapping[str, Any], who: str) -> str | None:
    labels = raw["metadata"]["labels"]
    if label := next((name for name in _FUNCTION_LABELS if name in labels), None):
        return f"{who} runs no function; remove the label {label}"
    if not 1 <= (percent := requested_gpu_percent(raw)) <= _PERCENT_MAX:
        return f"{who} requests the percent of its slice, from 1 to 100; set {_SHARE} ({percent})"
    if (milli := requested_cpu_milli(raw)) < _CPU_MIN_MILLI:
        return f"{who} requests the vCPUs of its slice, 1 or more; set cpu ({milli / 1000:g})"
    return None


def _member_problem(raw: Mapping[str, Any], who: str) -> str | None:
    metadata = raw["metadata"]
    if not any(name in metadata["labels"] for name in _FUNCTION_LABELS):
        return f"{who} runs a function; set the label {names.LABEL_FUNCTION}"
    if names.ANNOTATION_CONFIGURATION not in (metadata.get("annotations") or {}):
        return (
            f"{who} has one configuration; set the annotation {names.ANNOTATION_CONFIGURATION}: "
            '{"batch": 8, "cpu": 2, "gpuPercent": 28}'
        )
    if percent := requested_gpu_percent(raw):
        return f"{who} runs in the slice of a holder; remove its request {_SHARE} ({percent})"
    return None
