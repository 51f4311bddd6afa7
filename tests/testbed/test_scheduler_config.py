"""The shipped kube-scheduler configuration in a real kube-scheduler."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import scheduler_config
from tests.testbed.api import Api, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import function_pod
from workbench.cluster.mocked_nodes import gpu_nodes

GPU_PERCENT = "esg-scheduler.io/gpu-percent"


class Recorder(ThreadingHTTPServer):
    """An extender that accepts every node, prefers the last, and records its calls."""

    def __init__(self, api: Api) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def answer(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Answer one call."""
        self.calls.append((verb, arguments))
        if verb == "filter":
            return {"NodeNames": arguments["NodeNames"]}
        if verb == "prioritize":
            names = sorted(arguments["NodeNames"])
            return [{"Host": n, "Score": 10 if n == names[-1] else 0} for n in names]
        metadata = {"name": arguments["PodName"], "uid": arguments["PodUID"]}
        self.api.bind({"kind": "Pod", "metadata": metadata}, arguments["Node"])
        return {"Error": ""}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def do_POST(self) -> None:
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(self.server.answer(self.path.strip("/"), arguments)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def recorder(cluster: ControlPlane) -> Iterator[Recorder]:
    with Recorder(cluster.api) as server, ThreadPoolExecutor(1) as threads:
        threads.submit(server.serve_forever)
        yield server
        server.shutdown()


@pytest.mark.e2e
@pytest.mark.parametrize("managed_resources", [True, False])
def test_the_scheduler_calls_the_extender(
    cluster: ControlPlane, recorder: Recorder, *, managed_resources: bool
) -> None:
    """Filter, prioritize and bind receive names, for pods with a managed resource or for all."""
    create_nodes(cluster.api, gpu_nodes(3, 1))
    cluster.start_scheduler(
        scheduler_config.render(
            kubeconfig=cluster.scheduler_kubeconfig,
            extender_port=recorder.server_port,
            managed_resources=managed_resources,
        )
    )
    cluster.api.create(function_pod("named", function="f", resources={GPU_PERCENT: "10"}))
    cluster.api.create(function_pod("unnamed", function="f"))
    pods = "/api/v1/namespaces/default/pods"
    wait_until(
        lambda: all("nodeName" in pod["spec"] for pod in cluster.api.items(pods)), what="bound"
    )
    bound = {arguments["PodName"] for verb, arguments in recorder.calls if verb == "bind"}
    assert bound == ({"named"} if managed_resources else {"named", "unnamed"})
    assert {"filter", "prioritize", "bind"} == {verb for verb, _ in recorder.calls}
    filtered = next(arguments for verb, arguments in recorder.calls if verb == "filter")
    assert filtered["Nodes"] is None
    assert sorted(filtered["NodeNames"]) == ["node-000", "node-001", "node-002"]
    # The extender's ten points outweigh all in-tree scores.
    assert cluster.api.get(f"{pods}/named")["spec"]["nodeName"] == "node-002"


def test_rendering_changes_only_its_arguments() -> None:
    """A test runs the users' file except for the named differences."""
    shipped = yaml.safe_load(scheduler_config.TEMPLATE.read_text(encoding="utf-8"))
    text = scheduler_config.render(
        kubeconfig=Path("some/kubeconfig"),
        extender_port=1234,
        qps=50,
        scheduler_names=("a", "b"),
        max_backoff_s=2,
        verbs=("filter", "bind"),
    )
    rendered = yaml.safe_load(text)
    [extender] = rendered["extenders"]
    assert extender["urlPrefix"] == "http://127.0.0.1:1234"
    assert {"prioritizeVerb", "preemptVerb", "weight"}.isdisjoint(extender)
    assert extender["managedResources"] == shipped["extenders"][0]["managedResources"]
    connection = {"kubeconfig": "some/kubeconfig", "qps": 50, "burst": 100}
    assert rendered["clientConnection"] == connection
    assert [profile["schedulerName"] for profile in rendered["profiles"]] == ["a", "b"]
    assert rendered["podMaxBackoffSeconds"] == 2
