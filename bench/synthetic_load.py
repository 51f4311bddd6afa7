"""Synthetic load of the benchmarks: many nodes and pods, as JSON that an API server would send.

Everything is generated from a seed. A pod carries what pods of real clusters carry (owner, volumes,
probes, environment, tolerations, conditions, managed fields): each call has to parse all of it.
"""

import json
import random
import uuid
from collections.abc import Iterator
from typing import Any

from scheduler.model import names
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.grant import Grant, grant_annotations
from workbench.cluster.mocked_nodes import gpu_nodes

Json = dict[str, Any]
SHARES = (57, 42)  # of the pods on one GPU; the rest is too small for a third pod
CPUS = 128  # of a node with eight GPUs, as DGX-like machines have
_PATHS = ("/etc/config", "/var/run/secrets/kubernetes.io/serviceaccount", "/models", "/dev/shm")


def nodes(count: int, gpus: int) -> list[Json]:
    """Node objects."""
    return gpu_nodes(count, gpus, cpu=CPUS)


def node_name(number: int) -> str:
    """Name of the node ``number``."""
    return f"node-{number:03d}"


def gpu_uuid(node: int, gpu: int) -> str:
    """UUID of one GPU, as the test bed generates it."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node_name(node)}/{gpu}')}"


def pod(number: int, workflow: Workflow, stage: str, annotations: Json | None = None) -> Json:
    """A function pod of some 3 KB."""
    name = f"{workflow.metadata.name}-{stage}-{number:06d}"
    environment = [{"name": f"SETTING_{i}", "value": f"value-{i}"} for i in range(12)]
    mounts = [{"name": f"volume-{i}", "mountPath": path} for i, path in enumerate(_PATHS)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    return {
        "metadata": {
            "name": name,
            "generateName": f"{workflow.metadata.name}-{stage}-",
            "namespace": workflow.key[0],
            "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": "2026-01-31T12:00:00Z",
            "labels": {
                names.LABEL_WORKFLOW: workflow.metadata.name,
                names.LABEL_STAGE: stage,
                names.LABEL_REQUEST: f"request-{number:06d}",
                "app.kubernetes.io/name": "function",
                "workflows.argoproj.io/workflow": f"{workflow.metadata.name}-{number:06d}",
            },
            "annotations": {
                "kubectl.kubernetes.io/default-container": "function",
                "workflows.argoproj.io/node-name": f"{name}.{stage}",
                **(annotations or {}),
            },
            "ownerReferences": [
                {
                    "apiVersion": "argoproj.io/v1alpha1",
                    "kind": "Workflow",
                    "name": f"{workflow.metadata.name}-{number:06d}",
                    "uid": str(uuid.UUID(int=number)),
                    "controller": True,
                }
            ],
            "managedFields": [
                {
                    "manager": "workflow-controller",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2026-01-31T12:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {
                        "f:spec": {"f:containers": {f"f:field-{i}": {} for i in range(9)}}
                    },
                }
            ],
        },
        "spec": {
            "schedulerName": "esg-scheduler",
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "priority": 0,
            "volumes": [{"name": f"volume-{i}", "emptyDir": {}} for i in range(len(_PATHS))],
            "containers": [
                {
                    "name": "function",
                    "image": "registry.example.org/functions/segmentation:v1.2.3",
                    "env": environment,
                    "resources": {"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi"}},
                    "volumeMounts": mounts,
                    "livenessProbe": probe,
                    "readinessProbe": probe,
                    "terminationMessagePath": "/dev/termination-log",
                }
            ],
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def bound_pods(
    workflows: list[Workflow], profiles: list[FunctionProfile], nodes: int, gpus: int, count: int
) -> Iterator[bytes]:
    """Generate ``count`` running pods as JSON, two per GPU: some nodes are full, the others empty.

    Packing has that effect, and a call then has nodes to refuse, each with its reason, and nodes to
    score.
    """
    rng = random.Random(0)
    stages = [(workflow, stage) for workflow in workflows for stage in workflow.spec.stages]
    model = profiles[0].spec.gpus[0].model
    order = rng.sample(range(nodes), nodes)
    for number in range(count):
        place, gpu = divmod(number // len(SHARES), gpus)
        node = order[place]
        workflow, stage = rng.choice(stages)
        percent = SHARES[number % len(SHARES)]
        plan = {
            "batch": 4,
            "budget_ms": 431.25,
            "cpu": 2,
            "exact": True,
            "feasible": True,
            "gpu_model": model,
            "gpu_percent": percent,
            "memory_mib": 1980,
            "path_cost": 0.000123456789,
            "path_ms": 398.123,
            "rank": 0,
            "stage_ms": 201.456,
        }
        raw = pod(number, workflow, stage.name)
        raw["metadata"]["annotations"] |= grant_annotations(
            Grant(gpu_uuid(node, gpu), percent, 1980, 4, plan)
        )
        raw["spec"]["nodeName"] = node_name(node)
        raw["status"] |= {
            "phase": "Running",
            "conditions": [
                {"type": condition, "status": "True", "lastTransitionTime": "2026-01-31T12:00:01Z"}
                for condition in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [{"name": "function", "ready": True, "restartCount": 0}],
            "podIPs": [{"ip": "10.0.0.1"}],
        }
        yield json.dumps(raw).encode()
