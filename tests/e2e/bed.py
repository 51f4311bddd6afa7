"""A running scheduler as a test meets it: what to ask of it, and of the API server beside it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.documents import sample_workflows
from tests.testbed.api import Api, Json, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.driver import Driver, Run, instances
from tests.testbed.pods import PREFIX, function_pod
from tests.testbed.processes import Process

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
ENDED = {"Succeeded", "Failed"}

Holds = dict[str, tuple[str, int, int]]
"""Pod (namespace/name) to the GPU, percent and MiB that it holds."""


@dataclass
class Esg:
    """A running scheduler, and what a test asks of it."""

    plane: ControlPlane
    port: int
    extender: Process
    never_logged: set[str]
    """What the extender's log must not hold when the test is over."""

    @property
    def api(self) -> Api:
        return self.plane.api

    # -- the extender --------------------------------------------------------------------------

    def get(self, path: str) -> httpx.Response:
        """A GET to the extender."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", trust_env=False, timeout=60)

    def call(self, verb: str, message: Json) -> Json:
        """One of kube-scheduler's calls, made by the test in its place."""
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/{verb}", json=message, trust_env=False, timeout=60
        )
        answer.raise_for_status()
        said: Json = answer.json()
        return said

    def bind(self, pod: Json, node: str) -> str:
        """Have the extender bind the pod; the answer's error, empty when it is bound."""
        metadata = pod["metadata"]
        said = self.call(
            "bind",
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            },
        )
        error: str = said["Error"]
        return error

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def explain(self, name: str) -> Json:
        """Why a pod of namespace `default` is where it is."""
        said: Json = self.get(f"/v1/explain/default/{name}").json()
        return said

    def gpus(self, node: str) -> list[Json]:
        """A node's GPUs as the ledger has them."""
        nodes = self.get("/v1/snapshot").json()["nodes"]
        return next((each["gpus"] for each in nodes if each["name"] == node), [])

    def snapshot_holds(self) -> Holds:
        """What the ledger says."""
        return {
            f"{pod['namespace']}/{pod['name']}": (
                gpu["uuid"], pod["gpu_percent"], pod["memory_mib"],
            )
            for node in self.get("/v1/snapshot").json()["nodes"]
            for gpu in node["gpus"]
            for pod in gpu["pods"]
        }  # fmt: skip

    # -- the API server ------------------------------------------------------------------------

    def cluster_holds(self) -> Holds:
        """What the API server says: pods that are bound and have not ended."""
        holds = {}
        for pod in self.api.items("/api/v1/pods"):
            notes = pod["metadata"].get("annotations") or {}
            gpu = notes.get(f"{PREFIX}/gpu")
            ended = (pod.get("status") or {}).get("phase") in ENDED
            if gpu is None or ended or not pod["spec"].get("nodeName"):
                continue
            memory = notes[f"{PREFIX}/gpu-memory"].removeprefix("0=").removesuffix("M")
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            holds[name] = (gpu, int(notes[f"{PREFIX}/gpu-percent"]), int(memory))
        return holds

    def create(self, name: str, **asked: Any) -> Json:
        """Create a function pod that runs until it is deleted, unless `annotations` say else."""
        annotations = {"mock-run": "forever", **asked.pop("annotations", {})}
        return self.api.create(function_pod(name, annotations=annotations, **asked))

    def pod(self, name: str) -> Json:
        return self.api.get(f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        """The node that the pod is bound to; empty while it waits."""
        node: str = self.pod(name)["spec"].get("nodeName", "")
        return node

    def grant_of(self, name: str) -> Mapping[str, str]:
        """The pod's annotations of ours, without the prefix."""
        notes = self.pod(name)["metadata"].get("annotations") or {}
        return {key.removeprefix(f"{PREFIX}/"): value for key, value in notes.items()}

    def why_waiting(self, name: str) -> str:
        """What the pod's condition PodScheduled says; empty while it says nothing."""
        conditions = self.pod(name)["status"].get("conditions", [])
        told = [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]
        return told[0] if told else ""

    def event_messages(self, name: str, reason: str) -> list[str]:
        """The messages of a pod's Events of this reason."""
        events = self.api.items(EVENTS, fieldSelector=f"involvedObject.name={name},reason={reason}")
        return [event["message"] for event in events]

    # -- waiting -------------------------------------------------------------------------------

    def wait_bound(self, *names: str, timeout_s: float = 120.0) -> None:
        """Return when each of these pods has a node."""
        for name in names:
            wait_until(
                lambda name=name: self.node_of(name), what=f"{name} bound", timeout_s=timeout_s
            )

    def wait_why(self, name: str, text: str, *, timeout_s: float = 120.0) -> str:
        """Return what the pod is told when that contains `text`."""
        wait_until(
            lambda: text in self.why_waiting(name),
            what=f"{name} is told {text!r}",
            timeout_s=timeout_s,
        )
        return self.why_waiting(name)

    def wait_agreement(self, *, timeout_s: float = 120.0) -> Holds:
        """Return what is held when ledger and API server say the same."""
        wait_until(
            lambda: self.snapshot_holds() == self.cluster_holds(),
            what="the ledger says what the cluster does",
            timeout_s=timeout_s,
        )
        return self.cluster_holds()

    # -- load ----------------------------------------------------------------------------------

    def driver(self, **more: Any) -> Driver:
        """A DAG engine for this cluster."""
        return Driver(url=self.plane.url, tls=self.plane.tls(), **more)

    def drive(self, count: int, *, deadline_s: float, interval_s: float = 0.0, **more: Any) -> Run:
        """Run instances of the four workflows, in turn, to their end."""
        planned = instances(sample_workflows(), count, interval_s=interval_s)
        return asyncio.run(self.driver(**more).run(planned, deadline_s=deadline_s))


def plan_on(annotations: Mapping[str, str]) -> Json:
    """The plan that a pod's annotations (ours, without prefix) carry."""
    plan: Json = json.loads(annotations["plan"])
    return plan
