"""Function pods on the real node: their containers and their state."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scheduler.model.names import (
    ANNOTATION_BATCH,
    ANNOTATION_GPU,
    ANNOTATION_GPU_MEMORY,
    ANNOTATION_GPU_PERCENT,
)
from tests.node.real_cluster import RealCluster, container_id, is_ready
from tests.testbed import images
from tests.testbed.api import Json, wait_until

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
START_TIMEOUT_S = 300
GPU_MODEL = "NVIDIA A100-SXM4-80GB"
PERCENT = 40
GRANTED = {
    "NVIDIA_VISIBLE_DEVICES": ANNOTATION_GPU,
    "ESG_GPU": ANNOTATION_GPU,
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": ANNOTATION_GPU_PERCENT,
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ANNOTATION_GPU_MEMORY,
    "ESG_BATCH": ANNOTATION_BATCH,
}
"""Annotation of the Binding for every variable of the container."""


def profile(
    function: str, *, cold_start_ms: int, latencies_ms: Mapping[int, int], percent: int = PERCENT
) -> Json:
    """Create a profile of one share with run times by batch."""
    configurations = [
        {"batch": batch, "cpu": 1, "gpuPercent": percent, "latencyMs": latency_ms,
         "p95Ms": latency_ms, "memoryMib": 1800}
        for batch, latency_ms in latencies_ms.items()
    ]  # fmt: skip
    return {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "FunctionProfile",
        "metadata": {"name": function},
        "spec": {
            "coldStartMs": cold_start_ms,
            "gpus": [{"model": GPU_MODEL, "configurations": configurations}],
        },
    }


def workflow(name: str, function: str, *, slo_ms: int) -> Json:
    """Create a workflow of one stage with the name of its function."""
    return {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "slo": {"latencyMs": slo_ms, "objective": 0.99},
            "stages": [{"name": function, "function": function}],
        },
    }


PROFILE = profile("resize", cold_start_ms=100, latencies_ms={1: 40, 2: 60})
WORKFLOW = workflow("pictures", "resize", slo_ms=60_000)
LABELS = {"esg-scheduler.io/workflow": "pictures", "esg-scheduler.io/stage": "resize"}
_WAIT = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); signal.pause()"


def container(environment: Mapping[str, str] | None = None) -> Json:
    """Create a container that waits for SIGTERM."""
    return {
        "name": "function",
        "image": f"{images.PROJECT}:{images.version()}",
        "imagePullPolicy": "Never",
        "command": ["python", "-c", _WAIT],
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
    }


def deployment(
    name: str, *, replicas: int = 1, command: Sequence[str] = (), **environment: str
) -> Json:
    """Create a Deployment whose pods have workflow labels and request no GPU.

    Without a command its container waits for SIGTERM.
    """
    selector = {"app": name}
    main = container(environment) | ({"command": list(command)} if command else {})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": {**selector, **LABELS}},
                "spec": {"containers": [main]},
            },
        },
    }


class Function:
    """A Deployment of a function on the cluster.

    Args:
        cluster: the cluster.
        document: see `deployment`.
    """

    def __init__(self, cluster: RealCluster, document: Json) -> None:
        self.cluster = cluster
        self.name: str = document["metadata"]["name"]
        cluster.api.create(document)

    def pods(self) -> list[Json]:
        """Return its pods that are not terminating."""
        pods = self.cluster.api.items(PODS, labelSelector=f"app={self.name}")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def running(self) -> Json:
        """Return its only pod when it runs."""
        wait_until(
            lambda: [is_ready(pod) for pod in self.pods()] == [True],
            what=f"the pod of {self.name} runs",
            timeout_s=START_TIMEOUT_S,
        )
        [pod] = self.pods()
        return pod

    def reasons(self) -> list[str]:
        """Return the reasons of its unscheduled pods."""
        conditions = [c for pod in self.pods() for c in pod["status"].get("conditions", [])]
        return [c["message"] for c in conditions if c.get("reason") == "Unschedulable"]

    def environment(self, pod: Json) -> dict[str, str]:
        """Return the environment of the running container."""
        return self.cluster.environment(container_id(pod, "function"))

    def delete(self) -> None:
        """Delete it if it exists; return when its pods are deleted."""
        self.cluster.api.delete(f"{DEPLOYMENTS}/{self.name}")
        wait_until(
            lambda: not self.cluster.api.items(PODS, labelSelector=f"app={self.name}"),
            what=f"the pods of {self.name} are deleted",
            timeout_s=START_TIMEOUT_S,
        )


Deploy = Callable[..., Function]
"""Creation of a Deployment by name, with further environment variables."""


def grant(pod: Json) -> dict[str, Any]:
    """Return the grant in the pod's annotations, by variable of the container."""
    annotations = pod["metadata"].get("annotations", {})
    return {variable: annotations.get(key) for variable, key in GRANTED.items()}
