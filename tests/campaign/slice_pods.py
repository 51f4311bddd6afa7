"""Pods of the pool: holders and members, as their creators write them."""

import json

from tests.campaign.incidents import FUNCTIONS
from workbench.cluster.object_store import Raw

GRACE_S = 30  # covers the longest run, see `slice_runs`
_GROUP = "esg-scheduler.io"


def holder(name: str, percent: int, priority: int, group: str) -> Raw:
    """Create the holder of a slice."""
    requests = {"cpu": "2", f"{_GROUP}/gpu-percent": str(percent)}
    return _pod(name, priority, {"pool": "holder"} | _labels(group), {}, {"requests": requests})


def member(name: str, function: str, priority: int, group: str) -> Raw:
    """Create a member; the webhook sets its requests."""
    configuration = {"batch": 1, "cpu": 1, "gpuPercent": FUNCTIONS[function][0]}
    annotations = {"configuration": json.dumps(configuration)}
    labels = {"pool": "member", "function": function} | _labels(group)
    return _pod(name, priority, labels, annotations, {})


def _labels(group: str) -> Raw:
    return {"gateway-group": group} if group else {}


def _pod(name: str, priority: int, labels: Raw, annotations: Raw, resources: Raw) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {f"{_GROUP}/{key}": value for key, value in labels.items()},
            "annotations": {f"{_GROUP}/{key}": value for key, value in annotations.items()},
        },
        "spec": {
            "priority": priority,
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [{"name": "function", "resources": resources}],
        },
        "status": {"phase": "Pending"},
    }
