"""The health server: health and metrics for the kubelet and Prometheus, and nothing else."""

import os
import selectors
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.extender.health_server import health_server
from scheduler.model.documents import Workflow, to_manifest
from scheduler.search.planned_stage import planned_stage
from scheduler.search.planner import Planner, PlanRequest
from scheduler.server.health_process import HEALTH_LIMITS
from scheduler.server.sockets import ListenError
from scheduler.settings import Settings
from tests.extender.embedded_service import embedded_service
from tests.extender.factories import nodes_and_documents, pod
from tests.extender.harness import serving
from tests.extender.sample_cluster import unserved_kubeconfig

ESG = str(Path(sys.executable).with_name("esg"))
LOOKS = ("/metrics", "/healthz", "/readyz")


def observed_service(port: int = 0):
    settings = Settings(health_port=port, health_host="127.0.0.1")
    return embedded_service(settings, *nodes_and_documents().values())


@contextmanager
def observed(service):
    """The running extender, and a client of its health server."""
    side = health_server(service)
    url = f"http://127.0.0.1:{side.port}"
    with (
        serving(service, side.running) as extender,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
    ):
        yield extender, client


@pytest.fixture(scope="module")
def both():
    """One service for the whole file: these requests change nothing."""
    with observed(observed_service()) as running:
        yield running


def test_the_page_has_gpus_and_pending_pods():
    """Each GPU has its pods; a pod that waits has its reasons by their number."""
    settings = Settings(health_port=0, health_host="127.0.0.1", page=True)
    service = embedded_service(settings, *nodes_and_documents().values())
    with observed(service) as (_, client):
        report = client.get("/v1/gpus").json()
        assert client.get("/v1/pending/default:nobody").status_code == 404
    nodes = {node["name"]: node for node in report["nodes"]}
    ledger = {node["name"]: node for node in service.state.ledger.snapshot() if node["gpus"]}
    assert nodes.keys() == ledger.keys()
    for name, node in nodes.items():
        expected = [(g["uuid"], g["free_percent"], g["healthy"]) for g in ledger[name]["gpus"]]
        assert [(g["uuid"], g["free_percent"], g["healthy"]) for g in node["gpus"]] == expected
    assert report["pending_pods"] == len(report["pending"])
    assert report["clients_max"] == settings.gpu_clients_max


def test_the_page_has_the_plan_of_a_workflow():
    """It is that of `esg plan` on the GPUs that the cluster has, with its cost over time."""
    settings = Settings(health_port=0, health_host="127.0.0.1", page=True)
    nodes, documents = nodes_and_documents().values()
    service = embedded_service(settings, nodes, documents)
    with observed(service) as (_, client):
        catalogue = service.state.documents.catalogue
        (namespace, name), workflow = next(iter(catalogue.workflows.items()))
        report = client.get(f"/v1/plans/{namespace}:{name}").json()
        assert client.get(f"/v1/plans/{namespace}:none").status_code == 404
    request = PlanRequest(
        namespace=namespace,
        workflow=name,
        stage=workflow.spec.stages[0].name,
        fleet=service.scheduler.planner.fleet(),
        margin_ratio=settings.margin_ratio,
    )
    expected = planned_stage(Planner(catalogue, settings.rules), request, workflow)
    assert report["completion"] == expected.as_json()["completion"]
    assert report["candidates"] == expected.as_json()["candidates"]
    assert report["models"] == sorted({run["gpu_model"] for run in report["completion"]})
    (curve,) = report["curves"]
    costs = [cost for _, cost in curve["points"]]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.slow
def test_the_plan_of_a_workflow_without_a_profile_says_so():
    """The page has the planner's message."""
    settings = Settings(health_port=0, health_host="127.0.0.1", page=True)
    nodes, documents = nodes_and_documents().values()
    workflow = next(document for document in documents if isinstance(document, Workflow))
    function = workflow.spec.stages[0].function
    others = [d for d in documents if d.metadata.name != function]
    with observed(embedded_service(settings, nodes, others)) as (_, client):
        report = client.get(f"/v1/plans/{':'.join(workflow.key)}").json()
    assert report["error"].startswith(f"function {function} has no FunctionProfile")


@pytest.mark.parametrize("path", LOOKS)
def test_what_probes_and_scrapes_ask_is_the_same_on_both_ports(both, path):
    """The extender's own port has them too, for people at the loopback."""
    extender, client = both
    own, seen = extender.client.get(path), client.get(path)
    assert (own.status_code, seen.status_code) == (200, 200)
    assert own.headers["content-type"] == seen.headers["content-type"]


def test_a_service_without_exemplars_has_one_format(both):
    """A scraper that prefers OpenMetrics gets Prometheus' format."""
    _, client = both
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", f"/{verb}") for verb in ("filter", "prioritize", "bind", "preempt", "mutate")),
        ("GET", "/v1/snapshot"),
        ("GET", "/v1/explain/default/nobody"),
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
    ],
)
def test_nothing_else_is_there(both, method, path):
    """A client of the port can bind nothing, and reads nothing of single pods."""
    _, client = both
    message = {"Pod": pod("half"), "Nodes": None, "NodeNames": ["n1"]}
    answer = client.request(method, path, json=message if method == "POST" else None)
    assert answer.status_code == 404


@pytest.mark.parametrize("path", LOOKS)
def test_they_are_only_read(both, path):
    """No method except GET is answered."""
    _, client = both
    assert client.post(path, json={}).status_code == 405


@pytest.mark.slow
def test_both_ports_say_why_it_is_to_be_replaced():
    """The probe reports a background task that died, so the container is restarted."""
    with observed(service := observed_service()) as (extender, client):
        reason = "a background task of the service died"
        extender.on_loop(setattr, service.planning, "fatal_error", reason)
        for path in ("/healthz", "/readyz"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert answer.json() == {"detail": reason}


@pytest.mark.slow
def test_it_ends_with_the_extender():
    """The port is closed when the service has ended."""
    with observed(observed_service()) as (_, client):
        address = client.base_url.host, client.base_url.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)


@pytest.mark.slow
def test_idle_connections_take_a_fixed_number_of_files():
    """The extender's connections to kube-scheduler and the API server need theirs."""
    with observed(observed_service()) as (extender, client), ExitStack() as opened:
        address = client.base_url.host, client.base_url.port
        idle = selectors.DefaultSelector()
        for _ in range(HEALTH_LIMITS.connections_max + 20):
            connection = opened.enter_context(socket.create_connection(address, timeout=5))
            idle.register(connection, selectors.EVENT_READ)
        refused = set()
        while len(refused) < 20:
            refused |= {key.fd for key, _ in idle.select()}
        idle.close()
        assert extender.client.get("/readyz").status_code == 200


def test_a_port_that_is_taken_is_told():
    """The message names the address and the settings."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        objectives = (
            rf"health server cannot listen on 127.0.0.1 port {port} \(ESG_HEALTH_HOST, ESG_HEALTH"
        )
        with pytest.raises(ListenError, match=objectives):
            health_server(observed_service(port))


@pytest.mark.slow
def test_the_command_serves_it_where_a_port_is_set(tmp_path):
    """`esg serve` reads the port from its variable, and does not start without it."""
    kubeconfig = f"--kubeconfig={unserved_kubeconfig(tmp_path)}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        environment = {"ESG_HEALTH_HOST": "127.0.0.1", "ESG_HEALTH_PORT": str(port)}
        done = subprocess.run(
            [ESG, "serve", kubeconfig, "--port=0"],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: the health server cannot listen on 127.0.0.1 port {port}"
    )


def test_the_slo_of_each_workflow_is_told_while_it_is_there(both):
    """Alerts are computed from it, so it follows the documents: they appear, change and end."""
    extender, _ = both
    workflow = next(d for d in nodes_and_documents()["documents"] if d.kind == "Workflow")
    raw = to_manifest(workflow)
    raw["metadata"]["name"] = "told"
    raw["spec"]["slo"] = {"latencyMs": 250, "objective": 0.95}
    workflows = extender.service.state.documents.workflows

    def objectives():
        samples = [
            sample
            for family in text_string_to_metric_families(extender.client.get("/metrics").text)
            if family.name.startswith("esg_workflow_slo")
            for sample in family.samples
        ]
        return {s.name: s.value for s in samples if s.labels["workflow"] == "told"}

    assert objectives() == {}
    extender.on_loop(workflows.upsert, raw)
    assert objectives() == {
        "esg_workflow_slo_objective_ratio": 0.95,
        "esg_workflow_slo_seconds": 0.25,
    }
    raw["spec"]["slo"]["objective"] = 0.5
    extender.on_loop(workflows.upsert, raw)
    assert objectives()["esg_workflow_slo_objective_ratio"] == 0.5
    extender.on_loop(workflows.delete, raw)
    assert objectives() == {}
