"""Documents of the gateway's part of a run: a workflow of two functions with templates."""

from typing import Any

from workbench.cluster.api_requests import FUNCTION_PROFILES, FUNCTION_SERVERS, PODS, WORKFLOWS
from workbench.cluster.object_store import ObjectStore, Raw

GATEWAYS = ("g1", "g2")
GATEWAY_NAMESPACE = "esg"
GATEWAY_LABELS = {"app": "gateway"}
NAMESPACE = "default"
WORKFLOW = "serve"
SLOTS = {"classify": 1, "rank": 2}  # by function, in the order of the stages
POOL_LABEL = "esg-scheduler.io/gateway-pool"
KEEP_ALIVE_S = 15.0
_MODEL = "NVIDIA A100-SXM4-80GB"
_MEMORY_MIB = {20: 9_000, 50: 20_000}  # by percent
_BATCHES = (1, 2, 4)


def create_documents(store: ObjectStore) -> None:
    """Create the workflow, its functions and the pods of the gateway's replicas."""
    for function in SLOTS:
        store.create(FUNCTION_PROFILES, _profile(function))
        store.create(FUNCTION_SERVERS, function_server(function))
    store.create(WORKFLOWS, _workflow())
    for name in GATEWAYS:
        metadata = {"name": name, "namespace": GATEWAY_NAMESPACE, "labels": GATEWAY_LABELS}
        spec = {"nodeName": "control", "containers": [{"name": "gateway"}]}
        store.create(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def set_member(store: ObjectStore, name: str, *, is_ready: bool) -> None:
    """Write the readiness of a replica's pod."""
    ready = {"type": "Ready", "status": str(is_ready)}
    status = {"podIP": name, "conditions": [ready]}
    store.patch(PODS, (GATEWAY_NAMESPACE, name), {"status": status})


def latency_ms(batch: int, percent: int) -> float:
    """Return the longest time of a batch."""
    return (100.0 + 100.0 * batch) * (2.0 if percent == min(_MEMORY_MIB) else 1.0)


def memory_mib(percent: int) -> int:
    """Return the GPU memory of a share."""
    return _MEMORY_MIB[percent]


def function_server(function: str) -> Raw:
    """Return the FunctionServer of a function, without pods while nobody calls it."""
    template = {"spec": {"containers": [{"name": "model", "image": "model"}]}}
    spec = {
        "function": function,
        "template": template,
        "protocol": "http-binary",
        "port": 8000,
        "slots": SLOTS[function],
        "maxPods": 3,
        "keepAliveS": KEEP_ALIVE_S,
    }
    return {"metadata": {"name": function, "namespace": NAMESPACE}, "spec": spec}


def _profile(function: str) -> Raw:
    configurations: list[dict[str, Any]] = [
        {
            "batch": batch,
            "cpu": 1,
            "gpuPercent": percent,
            "latencyMs": latency_ms(batch, percent),
            "memoryMib": memory_mib(percent),
        }
        for percent in _MEMORY_MIB
        for batch in _BATCHES
    ]
    gpus = [{"model": _MODEL, "configurations": configurations}]
    return {"metadata": {"name": function}, "spec": {"coldStartMs": 1500, "gpus": gpus}}


def _workflow() -> Raw:
    first, second = SLOTS
    stages = [
        {"name": first, "function": first},
        {
            "name": second,
            "function": second,
            "after": [first],
            "inputs": [{"name": "x", "from": f"{first}.y"}],
        },
    ]
    spec = {"slo": {"latencyMs": 20_000}, "stages": stages}
    return {"metadata": {"name": WORKFLOW, "namespace": NAMESPACE}, "spec": spec}
