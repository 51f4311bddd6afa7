"""Minimal documents as they stand in a file, and copies with one change."""

import copy
from typing import Any

Raw = dict[str, Any]

POINT = {"batch": 1, "cpu": 1, "gpuPercent": 50, "latencyMs": 100, "memoryMib": 1000}
PROFILE: Raw = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "FunctionProfile",
    "metadata": {"name": "f"},
    "spec": {"gpus": [{"model": "A100", "configurations": [POINT]}]},
}
WORKFLOW: Raw = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "w", "namespace": "default"},
    "spec": {"slo": {"latencyMs": 500}, "stages": [{"name": "a", "function": "f"}]},
}
SERVER: Raw = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "FunctionServer",
    "metadata": {"name": "s", "namespace": "default"},
    "spec": {
        "function": "f",
        "selector": {"matchLabels": {"app": "f"}},
        "protocol": "grpc",
        "port": 8001,
    },
}


def changed(document: Raw, path: str, value: Any) -> Raw:
    """Return a copy with the value at the dotted path; None removes the field."""
    whole = copy.deepcopy(document)
    *way, last = (int(part) if part.isdecimal() else part for part in path.split("."))
    place: Any = whole
    for part in way:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return whole
