"""Servers of functions, and pods that are ready to serve them."""

from typing import Any

from scheduler.gateway.discovery.server_pods import ServerPod, pod_server
from scheduler.model.function_server import FunctionServer

NAMESPACE = "default"
MODEL = "NVIDIA A100-SXM4-80GB"


def server(function: str, protocol: str = "http-binary", **fields: object) -> FunctionServer:
    """Create the server of a function."""
    spec = {
        "function": function,
        "selector": {"matchLabels": {"app": function}},
        "protocol": protocol,
        "port": 8000,
        **fields,
    }
    metadata = {"name": function, "namespace": NAMESPACE}
    return FunctionServer.model_validate({"metadata": metadata, "spec": spec})


def ready_pod(number: int, document: FunctionServer, **changed: Any) -> ServerPod:
    """Create a pod that the server selects, as discovery reports it."""
    function = document.spec.function
    fields: dict[str, Any] = {
        "name": f"{NAMESPACE}/{function}-{number}",
        "uid": f"{function}-{number}",
        "function": (NAMESPACE, function),
        "server": pod_server(document),
        "host": "127.0.0.1",
        "gpu_model": MODEL,
        "cpu": 1,
        "gpu_percent": 100,
        "memory_mib": 1000,
        "gpu": "GPU-0",
        "node": "node",
        "ready": True,
        "draining": False,
    }
    return ServerPod(**(fields | changed))
