"""Factories of documents, nodes and pods, small enough to follow.

One GPU has 100 % and 80 GiB; MPS's server takes 1,024 MiB of it. The numbers of the functions are
chosen so that what fits where can be counted on the fingers.
"""

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from scheduler.model.documents import Document, FunctionProfile, Workflow
from workbench.profiles import builders as documents

GROUP = "esg-scheduler.io"
MODEL = "NVIDIA A100-SXM4-80GB"
_numbers = count(1)


def profile(
    name: str, *points: tuple[int, float], batch: int = 1, cpu: int = 1, **about: Any
) -> FunctionProfile:
    """A function of one batch and one vCPU; ``points`` are (gpuPercent, latencyMs).

    ``about`` has cold_start_ms and output_mib.
    """
    rows = [(batch, cpu, percent, ms) for percent, ms in points]
    return documents.profile(name, {MODEL: rows}, base_mib=4000, memory_mib=0, **about)


def workflow(name: str, slo_ms: float, *functions: str, namespace: str = "default") -> Workflow:
    """A chain of stages, each with the name of its function."""
    stages = {f: (f, *functions[max(0, i - 1) : i]) for i, f in enumerate(functions)}
    return documents.graph(stages, name=name, namespace=namespace, slo_ms=slo_ms)


DOCUMENTS: tuple[Document, ...] = (
    profile("tenth", (10, 100)),
    profile("half", (50, 100)),
    profile("whole", (100, 100)),
    # Cheap and slow, or dear and fast: which of them is planned shows how much time is left.
    profile("elastic", (20, 400), (90, 100)),
    workflow("chain", 1_000, "half", "elastic"),
    workflow("lone-stage", 500, "elastic"),
    workflow("unprofiled", 500, "nobody-knows"),
)


def gpu(index: int, node: str, **changed: Any) -> dict[str, Any]:
    """One GPU as the node agent writes it."""
    return {
        "index": index,
        "uuid": f"GPU-{node}-{index}",
        "model": MODEL,
        "memory_mib": 81_920,
        "multiprocessors": 108,
        "healthy": True,
    } | changed


def node(
    name: str, gpus: int = 1, *, cpu: str = "16", inventory: str | None = None
) -> dict[str, Any]:
    """A Node; ``inventory`` replaces its annotation."""
    annotation = json.dumps([gpu(i, name) for i in range(gpus)]) if inventory is None else inventory
    resources = {"cpu": cpu, f"{GROUP}/gpu-percent": str(100 * gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {f"{GROUP}/gpus": annotation}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def bare_node(name: str) -> dict[str, Any]:
    """A Node without a GPU."""
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "16"}}}


def pod(
    function: str | None = None,
    *,
    workflow: str | None = None,
    stage: str | None = None,
    request: str | None = None,
    name: str | None = None,
    uid: str | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, Any] | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """A Pod as kube-scheduler sends it; without function and workflow, a pod of another owner."""
    number = next(_numbers)
    ours = {"function": function, "workflow": workflow, "stage": stage, "request": request}
    raw: dict[str, Any] = {
        "metadata": {
            "name": name or f"pod-{number}",
            "namespace": "default",
            "uid": uid or f"uid-{number}",
            "labels": {f"{GROUP}/{k}": v for k, v in ours.items() if v is not None}
            | dict(labels or {}),
            "annotations": {f"{GROUP}/{k}": v for k, v in (annotations or {}).items()},
        },
        "spec": {"containers": [{"name": "function", "resources": {}}]},
        "status": {"phase": "Pending"},
    }
    if requests is not None:
        raw["spec"]["containers"][0]["resources"] = {"requests": dict(requests)}
    if priority is not None:
        raw["spec"]["priority"] = priority
    return raw


def nodes_and_documents() -> dict[str, Any]:
    """Two nodes of two GPUs and one without, and the documents."""
    return {
        "nodes": [node("n1", 2), node("n2", 2), bare_node("bare")],
        "documents": DOCUMENTS,
    }
