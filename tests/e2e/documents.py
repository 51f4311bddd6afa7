"""Workflows and FunctionProfiles of the end-to-end tests: the samples, and small ones."""

from pathlib import Path

import yaml

from tests.testbed import REPOSITORY
from tests.testbed.api import Json

SAMPLES = REPOSITORY / "deploy" / "samples"
CRDS = REPOSITORY / "deploy" / "crds"
RBAC = REPOSITORY / "deploy" / "rbac.yaml"
API_VERSION = "esg-scheduler.io/v1alpha1"
A100 = "NVIDIA A100-SXM4-80GB"


def documents_in(path: Path) -> list[Json]:
    """Read the YAML documents of a file or a folder."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return [
        document
        for file in files
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if document
    ]


def sample_documents() -> list[Json]:
    """Return the sample Workflows and FunctionProfiles, which the extender plans with."""
    kinds = ("FunctionProfile", "Workflow")
    return [document for document in documents_in(SAMPLES) if document["kind"] in kinds]


def sample_workflows() -> list[Json]:
    """Return the four workflows of the ESG paper."""
    return [document for document in documents_in(SAMPLES) if document["kind"] == "Workflow"]


def profile(name: str, *configurations: Json) -> Json:
    """Create a FunctionProfile for an A100; see `configuration`."""
    return {
        "apiVersion": API_VERSION,
        "kind": "FunctionProfile",
        "metadata": {"name": name},
        "spec": {
            "coldStartMs": 100,
            "gpus": [{"model": A100, "configurations": list(configurations)}],
        },
    }


def configuration(percent: int, *, memory_mib: int = 4_000, latency_ms: float = 100) -> Json:
    """Create a configuration of batch 1 on one vCPU and this share of a GPU."""
    return {
        "batch": 1, "cpu": 1, "gpuPercent": percent, "latencyMs": latency_ms,
        "memoryMib": memory_mib,
    }  # fmt: skip


def workflow(name: str, *functions: str, latency_ms: float = 10_000) -> Json:
    """Create a Workflow of these functions in series; a stage has the name of its function."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "slo": {"latencyMs": latency_ms},
            "stages": [
                {"name": name, "function": name, **({"after": [functions[at - 1]]} if at else {})}
                for at, name in enumerate(functions)
            ],
        },
    }
