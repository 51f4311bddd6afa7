"""Harness of the end-to-end tests: a running scheduler and its API server."""

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
from workbench.cluster.extender import binding_arguments

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
ENDED = {"Succeeded", "Failed"}

Reservations = dict[str, tuple[str, int, int]]
"""GPU, percent and MiB of every reservation, by pod (namespace/name)."""


@dataclass
class Harness:
    """A running scheduler, with queries and waits for tests."""

    plane: ControlPlane
    port: int
    extender: Process
    never_logged: set[str]
    """Texts that the extender's log must not contain at the end of the test."""

    @property
    def api(self) -> Api:
        return self.plane.api

    # -- the extender --------------------------------------------------------------------------

    def get(self, path: str) -> httpx.Response:
        """Send a GET to the extender."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", trust_env=False, timeout=60)

    def call(self, verb: str, message: Json) -> Json:
        """Call the extender in place of kube-scheduler."""
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/{verb}", json=message, trust_env=False, timeout=60
        )
        answer.raise_for_status()
        content: Json = answer.json()
        return content

    def bind(self, pod: Json, node: str) -> str:
        """Bind the pod through the extender; return the error, empty on success."""
        error: str = self.call("bind", binding_arguments(pod, node))["Error"]
        return error

    def metric_count(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def explain(self, name: str) -> Json:
        """Return the explanation of a pod in namespace `default`."""
        content: Json = self.get(f"/v1/explain/default/{name}").json()
        return content

    def gpus(self, node: str) -> list[Json]:
        """Return a node's GPUs in the ledger."""
        nodes = self.get("/v1/snapshot").json()["nodes"]
        return next((item["gpus"] for item in nodes if item["name"] == node), [])

    def snapshot_reservations(self) -> Reservations:
        """Return the reservations in the ledger."""
        return {
            f"{pod['namespace']}/{pod['name']}": (
                gpu["uuid"], pod["gpu_percent"], pod["memory_mib"],
            )
            for node in self.get("/v1/snapshot").json()["nodes"]
            for gpu in node["gpus"]
            for pod in gpu["pods"]
        }  # fmt: skip

    # -- the API server ------------------------------------------------------------------------

    def cluster_reservations(self) -> Reservations:
        """Return the reservations in the API server: bound pods that have not ended."""
        reservations = {}
        for pod in self.api.items("/api/v1/pods"):
            notes = pod["metadata"].get("annotations") or {}
            gpu = notes.get(f"{PREFIX}/gpu")
            ended = (pod.get("status") or {}).get("phase") in ENDED
            if gpu is None or ended or not pod["spec"].get("nodeName"):
                continue
            role = json.loads(notes[f"{PREFIX}/plan"]).get("pool")
            memory = notes.get(f"{PREFIX}/gpu-memory", "0=0M").removeprefix("0=").removesuffix("M")
            percent = 0 if role == "member" else int(notes[f"{PREFIX}/gpu-percent"])
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            reservations[name] = (gpu, percent, int(memory))
        return reservations

    def create(self, name: str, **options: Any) -> Json:
        """Create a function pod that runs until its deletion, unless `annotations` limit it."""
        annotations = {"mock-run": "forever", **options.pop("annotations", {})}
        return self.api.create(function_pod(name, annotations=annotations, **options))

    def end(self, name: str, **status: str) -> None:
        """Write a bound pod's end, as its kubelet would: `phase`, and the other fields.

        Written before the mocked kubelet's `Running`, it would be lost.
        """
        wait_until(lambda: self.pod(name)["status"]["phase"] == "Running", what=f"{name} runs")
        containers = [
            {**container, "ready": False, "state": {"terminated": {"exitCode": 1}}}
            for container in self.pod(name)["status"]["containerStatuses"]
        ]
        change = {"status": {**status, "containerStatuses": containers}}
        self.api.patch(f"{PODS}/{name}/status", change)

    def pod(self, name: str) -> Json:
        return self.api.get(f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        """Return the node of the pod; empty while it waits."""
        node: str = self.pod(name)["spec"].get("nodeName", "")
        return node

    def grant_of(self, name: str) -> Mapping[str, str]:
        """Return the pod's annotations of esg-scheduler.io, without the prefix."""
        notes = self.pod(name)["metadata"].get("annotations") or {}
        return {key.removeprefix(f"{PREFIX}/"): value for key, value in notes.items()}

    def refusal_of(self, name: str) -> str:
        """Return the message of the pod's condition PodScheduled; empty without one."""
        conditions = self.pod(name)["status"].get("conditions", [])
        messages = [c.get("message", "") for c in conditions if c["type"] == "PodScheduled"]
        return messages[0] if messages else ""

    def event_messages(self, name: str, reason: str) -> list[str]:
        """Return the messages of a pod's Events with this reason."""
        events = self.api.items(EVENTS, fieldSelector=f"involvedObject.name={name},reason={reason}")
        return [event["message"] for event in events]

    # -- waiting -------------------------------------------------------------------------------

    def wait_bound(self, *names: str, timeout_s: float = 120.0) -> None:
        """Return when every one of these pods has a node."""
        for name in names:
            wait_until(
                lambda name=name: self.node_of(name), what=f"{name} bound", timeout_s=timeout_s
            )

    def wait_refused(self, name: str, text: str, *, timeout_s: float = 120.0) -> str:
        """Wait until the pod's PodScheduled message contains `text`; return the message."""
        wait_until(
            lambda: text in self.refusal_of(name),
            what=f"{name} is refused with {text!r}",
            timeout_s=timeout_s,
        )
        return self.refusal_of(name)

    def wait_agreement(self, *, timeout_s: float = 120.0) -> Reservations:
        """Wait until ledger and API server agree; return the reservations."""
        wait_until(
            lambda: self.snapshot_reservations() == self.cluster_reservations(),
            what="ledger and API server agree",
            timeout_s=timeout_s,
        )
        return self.cluster_reservations()

    # -- load ----------------------------------------------------------------------------------

    def driver(self, **options: Any) -> Driver:
        """Create a DAG engine for this cluster."""
        return Driver(url=self.plane.url, tls=self.plane.tls(), **options)

    def drive(
        self, count: int, *, deadline_s: float, interval_s: float = 0.0, **options: Any
    ) -> Run:
        """Run instances of the four workflows, in turn, until they end."""
        planned = instances(sample_workflows(), count, interval_s=interval_s)
        return asyncio.run(self.driver(**options).run(planned, deadline_s=deadline_s))


def plan_on(annotations: Mapping[str, str]) -> Json:
    """Return the plan in a pod's annotations (without the prefix)."""
    plan: Json = json.loads(annotations["plan"])
    return plan
