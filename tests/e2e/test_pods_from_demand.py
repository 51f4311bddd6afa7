"""Pods from demand: requests of a workflow have pods created, placed, warmed, called and ended."""

import json
import sys

import httpx
import pytest

from tests.e2e.documents import API_VERSION, configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.harness import PODS, Harness, plan_on
from tests.testbed.api import Json, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.pods import PREFIX
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

LABEL = f"{PREFIX}/gateway-pool"
REQUESTS = 40
SEEN = ("Traceback", "RBAC:", "may not create pods")


def server(port: int, **spec: object) -> Json:
    """Create a FunctionServer of function f whose pods KWOK runs."""
    container = {"name": "server", "image": "none"}
    return {
        "apiVersion": API_VERSION,
        "kind": "FunctionServer",
        "metadata": {"name": "f-server", "namespace": "default"},
        "spec": {
            "function": "f",
            "protocol": "http-binary",
            "port": port,
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
    }


def player(plane: ControlPlane, port: int) -> Process:
    """Create the process that plays the model servers of all pods, on every loopback address."""
    command = [
        sys.executable, "-m", "workbench.cluster.model_server",
        "--host", "0.0.0.0", "--port", str(port), "--run-ms", "20",
    ]  # fmt: skip
    return plane.process("player", command)


def pool(harness: Harness) -> list[Json]:
    """Return the pods that the gateway has created and not deleted."""
    pods = harness.api.items(PODS, labelSelector=f"{LABEL}=f-server")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def call(client: httpx.Client, value: float, workflow: str = "w") -> None:
    """Call a workflow with one row, and check that the answer is of this row."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [value]}
    answer = client.post(f"/v2/models/{workflow}/infer", json={"inputs": [tensor]})
    assert answer.status_code == httpx.codes.OK, answer.text
    outputs = {output["name"]: output["data"] for output in answer.json()["outputs"]}
    assert outputs["y"] == [2 * value]


@pytest.fixture
def documents() -> list[Json]:
    """A workflow of one function with batches of 1 on shares of 20 and 50 %."""
    points = [configuration(20, latency_ms=60), configuration(50, latency_ms=30)]
    return [profile("f", *points), workflow("w", "f", latency_ms=10_000)]


def test_requests_have_pods_created_and_ended(esg, documents):
    """Pods have exact grants, are bound, answer all requests, survive a restart, and go again."""
    harness = esg(nodes=2, gpus=1, documents=documents)
    plane = harness.plane
    for document in documents_in(RBAC):
        harness.api.apply(document)
    model_port, port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        running(player(plane, model_port), f"http://127.0.0.1:{model_port}/v2/models/f/ready"),
        running(gateway(plane, port), f"{url}/v2/health/ready") as process,
        httpx.Client(base_url=url, trust_env=False, timeout=120) as client,
    ):
        harness.api.apply(server(model_port, keepAliveS=3600, maxPods=4))
        wait_until(lambda: answers(f"{url}/v2/models/w/ready"), what="the gateway has the server")
        assert pool(harness) == []
        for value in range(REQUESTS):
            call(client, float(value))
        process.stop()  # until then, the rate of the requests may bring another pod
        wait_until(lambda: all(map(runs, pool(harness))), what="all pods run")
        pods = pool(harness)
        assert 1 <= len(pods) <= 4
        for pod in pods:
            check_grant(pod)
        names = {pod["metadata"]["name"] for pod in pods}

        process.start()
        process.wait_ready(lambda: answers(f"{url}/v2/health/ready"), timeout_s=180)
        wait_until(lambda: answers(f"{url}/v2/models/w/ready"), what="the gateway has the server")
        call(client, 0.5)
        assert {pod["metadata"]["name"] for pod in pool(harness)} <= names

        harness.api.apply(server(model_port, keepAliveS=1, maxPods=4))
        wait_until(lambda: pool(harness) == [], what="idle pods are deleted", timeout_s=240)
        harness.api.apply(server(model_port, keepAliveS=3600, maxPods=4))
        call(client, 1.5)
        assert pool(harness)
        harness.api.delete(
            "/apis/esg-scheduler.io/v1alpha1/namespaces/default/functionservers/f-server"
        )
        wait_until(lambda: pool(harness) == [], what="the owner's pods are deleted")
        log = process.log.read_text(encoding="utf-8", errors="replace")
        assert [line for line in log.splitlines() if any(sign in line for sign in SEEN)] == []


def runs(pod: Json) -> bool:
    return bool(pod["status"].get("podIP"))


def check_grant(pod: Json) -> None:
    """Check that a pod is bound with the configuration that it was created for."""
    notes = {k.removeprefix(f"{PREFIX}/"): v for k, v in pod["metadata"]["annotations"].items()}
    point = json.loads(notes["configuration"])
    plan = plan_on(notes)
    assert pod["spec"]["nodeName"]
    assert pod["status"]["podIP"].startswith("127.")
    assert int(notes["gpu-percent"]) == point["gpuPercent"]
    assert int(notes["batch"]) == point["batch"] == plan["batch"]
    assert plan["cpu"] == point["cpu"]
    [owner] = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == (
        "FunctionServer",
        "f-server",
        True,
    )
