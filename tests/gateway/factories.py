"""Objects of the API server as the gateway's watches report them."""

import json

from scheduler.cluster.resource import trim_server_pod
from scheduler.model.documents import FunctionProfile

A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"


def profile(name="f", models=(A100,)):
    """Create a FunctionProfile with one configuration on each GPU model."""
    point = {"batch": 4, "cpu": 2, "gpuPercent": 28, "latencyMs": 100, "memoryMib": 1000}
    gpus = [{"model": model, "configurations": [point]} for model in models]
    return FunctionProfile.model_validate({"metadata": {"name": name}, "spec": {"gpus": gpus}})


def server(name="s", function="f", created="2026-01-01T00:00:00Z", namespace="n", **spec):
    """Create a FunctionServer that selects pods with the label app=FUNCTION."""
    whole = {
        "function": function,
        "selector": {"matchLabels": {"app": function}},
        "protocol": "http-binary",
        "port": 8000,
        **spec,
    }
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {k: v for k, v in whole.items() if v is not None}}


def grant(percent=28, model=A100):
    """Create the annotations of a Binding."""
    plan = {"cpu": 2, **({"gpu_model": model} if model else {})}
    return {
        "esg-scheduler.io/gpu": "GPU-1",
        "esg-scheduler.io/gpu-percent": str(percent),
        "esg-scheduler.io/gpu-memory": "0=1000M",
        "esg-scheduler.io/batch": "4",
        "esg-scheduler.io/plan": json.dumps(plan),
    }


def workflow(name="w", stages=("f",), slo_ms=10_000, namespace="n"):
    """Create a Workflow of these functions in series; each takes x from the y before it."""
    described = [
        {
            "name": function,
            "function": function,
            **(
                {
                    "after": [stages[i - 1]],
                    "inputs": [{"name": "x", "from": f"{stages[i - 1]}.y"}],
                }
                if i
                else {}
            ),
        }
        for i, function in enumerate(stages)
    ]
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"slo": {"latencyMs": slo_ms}, "stages": described},
    }


def pod(
    name="p",
    *,
    namespace="n",
    uid="u",
    app="f",
    annotations=None,
    host="10.0.0.1",
    ready=True,
    deleted=False,
    phase="Running",
    cpu=None,
    ports=({"containerPort": 8000},),
):
    """Create a running pod with a grant, trimmed like the gateway's watch."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "labels": {"app": app, "tier": "x"},
        "annotations": grant() if annotations is None else annotations,
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    requests = {} if cpu is None else {"cpu": cpu}
    status = {
        "phase": phase,
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True" if ready else "False"},
        ],
    }
    if host:
        status["podIP"] = host
    return trim_server_pod(
        {
            "metadata": metadata,
            "spec": {
                "nodeName": "node-1",
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"requests": requests},
                        "ports": list(ports),
                    }
                ],
            },
            "status": status,
        }
    )
