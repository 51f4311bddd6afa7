"""Grants: the share of a GPU that a bound pod holds, in its annotations."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from scheduler.model import names
from scheduler.model.document_fields import LATENCY_MAX_MS
from scheduler.model.message_text import quoted
from scheduler.model.pod import CPU_MAX, FunctionPod
from scheduler.model.pod_fields import QUEUED_MAX, PodError, integer_of

_PLAN_JSON = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
_MEMORY = re.compile(r"0=(?P<mib>[1-9]\d{0,8})M", re.ASCII)


@dataclass(frozen=True, slots=True)
class Grant:
    """Share of one GPU that a bound pod holds, from the annotations of its Binding.

    The holder of a slice has no memory and no batch, and a member's percent is that of a batch in
    its slice.
    """

    gpu_uuid: str
    gpu_percent: int
    memory_mib: int
    batch: int
    plan: Mapping[str, Any]

    @property
    def cpu(self) -> int:
        """Granted vCPUs of the plan; 0 if the plan has no valid number."""
        cpu = self.plan.get("cpu")
        return cpu if type(cpu) is int and 0 <= cpu <= CPU_MAX else 0

    @property
    def pool(self) -> str:
        """Role in its pool, as it was bound; empty: none. Labels may change."""
        return str(self.plan.get("pool") or "")

    @property
    def group(self) -> str:
        """Group of gateways whose pool it is in, as it was bound; empty: none, or in no pool."""
        return str(self.plan.get("group") or "")


def planned_run_ms(raw: Mapping[str, Any]) -> tuple[float, float]:
    """Return the start and run times, ms, that a bound pod was planned with; 0 if unknown."""
    plan = _plan((raw.get("metadata") or {}).get("annotations") or {})
    return _time_ms(plan.get("start_ms")), _time_ms(plan.get("stage_ms"))


def _plan(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a bound pod; empty if it is missing or invalid."""
    try:
        # json.loads accepts NaN and lone surrogates, which JSON responses cannot contain.
        plan = from_json(annotations.get(names.ANNOTATION_PLAN, "{}"), allow_inf_nan=False)
    except ValueError:
        return {}
    return plan if isinstance(plan, dict) else {}


def _time_ms(value: object) -> float:
    """Return a time of the plan; 0 if it is none, or longer than any that is planned."""
    if isinstance(value, int | float) and 0 <= value <= LATENCY_MAX_MS:
        return float(value)
    return 0.0


def grant_of(raw: Mapping[str, Any]) -> Grant | None:
    """Parse the grant in a pod's annotations; None if the pod has none.

    Raises:
        PodError: the pod has a grant, and it is invalid.
    """
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    gpu = annotations.get(names.ANNOTATION_GPU)
    if gpu is None:
        return None
    percent = integer_of(annotations, names.ANNOTATION_GPU_PERCENT, 1, 100)
    plan = _plan(annotations)
    if plan.get("pool") == names.POOL_HOLDER:
        return Grant(gpu, percent, 0, 0, plan)
    memory = annotations.get(names.ANNOTATION_GPU_MEMORY, "")
    match = _MEMORY.fullmatch(memory)
    if match is None:
        raise PodError(
            f"annotation {names.ANNOTATION_GPU_MEMORY}: {quoted(memory)} is not of the form 0=4096M"
        )
    return Grant(
        gpu_uuid=gpu,
        gpu_percent=percent,
        memory_mib=int(match["mib"]),
        batch=integer_of(annotations, names.ANNOTATION_BATCH, 1, QUEUED_MAX),
        plan=plan,
    )


def grant_annotations(grant: Grant) -> dict[str, str]:
    """Return the annotations of a pod with this grant; `grant_of` is the inverse."""
    annotations = {
        names.ANNOTATION_GPU: grant.gpu_uuid,
        names.ANNOTATION_GPU_PERCENT: str(grant.gpu_percent),
        names.ANNOTATION_PLAN: _PLAN_JSON.encode(grant.plan),
    }
    if grant.pool != names.POOL_HOLDER:
        annotations[names.ANNOTATION_GPU_MEMORY] = f"0={grant.memory_mib}M"
        annotations[names.ANNOTATION_BATCH] = str(grant.batch)
    return annotations


def cdi_annotations(pod: FunctionPod, grant: Grant, kind: str) -> dict[str, str]:
    """Return the annotations by which NVIDIA's container toolkit gives a pod its GPU over NRI.

    ``kind`` is the kind of the CDI devices, for example ``nvidia.com/gpu``; empty: none.
    """
    if not kind:
        return {}
    device = f"{kind}={grant.gpu_uuid}"
    prefix = f"{names.ANNOTATION_CDI_PREFIX}container."
    return {f"{prefix}{container}": device for container in pod.gpu_containers}
