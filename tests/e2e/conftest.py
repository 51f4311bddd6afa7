"""A cluster with our scheduler on it: control plane, nodes, documents, extender, kube-scheduler."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.testbed import REPOSITORY, scheduler_config
from tests.testbed.api import Api, apply_all
from tests.testbed.control_plane import ControlPlane
from tests.testbed.driver import Driver, Run, instances
from tests.testbed.extender import start_extender
from tests.testbed.fixtures import cluster, control_plane
from tests.testbed.nodes import create_nodes, gpu_nodes
from tests.testbed.processes import Process, free_port

__all__ = ["cluster", "control_plane", "esg"]
SAMPLES = REPOSITORY / "deploy" / "samples"
CRDS = REPOSITORY / "deploy" / "crds"


def documents_in(folder) -> list[dict[str, Any]]:
    """All YAML documents of a folder."""
    return [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document
    ]


def sample_workflows() -> list[dict[str, Any]]:
    """The four workflows of the ESG paper."""
    return [document for document in documents_in(SAMPLES) if document["kind"] == "Workflow"]


@dataclass
class Esg:
    """A running scheduler, and what a test asks of it."""

    plane: ControlPlane
    port: int
    extender: Process
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        return self.plane.api

    def get(self, path: str) -> httpx.Response:
        """A GET to the extender."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", trust_env=False, timeout=20)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def snapshot_holds(self) -> dict[str, tuple[str, int, int]]:
        """What the ledger says: pod name to (GPU, percent, MiB)."""
        return {
            f"{pod['namespace']}/{pod['name']}": (
                gpu["uuid"], pod["gpu_percent"], pod["memory_mib"],
            )
            for node in self.get("/v1/snapshot").json()["nodes"]
            for gpu in node["gpus"]
            for pod in gpu["pods"]
        }  # fmt: skip

    def cluster_holds(self) -> dict[str, tuple[str, int, int]]:
        """What the API server says: pods that are bound and have not ended."""
        holds = {}
        for pod in self.api.items("/api/v1/pods"):
            notes = pod["metadata"].get("annotations") or {}
            gpu = notes.get("esg-scheduler.io/gpu")
            ended = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
            if gpu is None or ended or not pod["spec"].get("nodeName"):
                continue
            memory = notes["esg-scheduler.io/gpu-memory"].removeprefix("0=").removesuffix("M")
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            holds[name] = (gpu, int(notes["esg-scheduler.io/gpu-percent"]), int(memory))
        return holds

    def drive(self, count: int, *, deadline_s: float, interval_s: float = 0.0, **more: Any) -> Run:
        """Run instances of the four workflows, in turn, to their end."""
        driver = Driver(url=self.plane.url, tls=self.plane.tls(), **more)
        planned = instances(sample_workflows(), count, interval_s=interval_s)
        return asyncio.run(driver.run(planned, deadline_s=deadline_s))


@pytest.fixture
def esg(cluster: ControlPlane) -> Iterator[Callable[..., Esg]]:
    """A function that starts our scheduler over so many nodes and GPUs."""

    def start(
        nodes: int = 4,
        gpus: int = 2,
        *,
        environment: Mapping[str, str] | None = None,
        documents: list[dict[str, Any]] | None = None,
        cpu: int = 64,
        **config: Any,
    ) -> Esg:
        apply_all(cluster.api, documents_in(CRDS))
        apply_all(cluster.api, documents_in(SAMPLES) if documents is None else documents)
        create_nodes(cluster.api, gpu_nodes(nodes, gpus, cpu=cpu))
        port = free_port()
        extender = start_extender(cluster, port=port, environment=environment)
        cluster.start_scheduler(
            scheduler_config.render(
                kubeconfig=cluster.scheduler_kubeconfig,
                extender_port=port,
                **{"managed_resources": False, "max_backoff_s": 2, **config},
            )
        )
        return Esg(cluster, port, extender, environment or {})

    return start


def plan_on(annotations: Mapping[str, str]) -> dict[str, Any]:
    """The plan that a pod's annotations (ours, without prefix) carry."""
    plan: dict[str, Any] = json.loads(annotations["plan"])
    return plan
