"""Pods of a Deployment behind a FunctionServer with a selector: no pod is created for them."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.documents import API_VERSION, configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.harness import PODS
from tests.e2e.test_pods_from_demand import call, player
from tests.testbed.api import Json, apply_all, wait_until
from tests.testbed.pods import PREFIX
from workbench.cluster.process import free_port

REQUESTS = 20
REPLICAS = 2
LABELS = {"app": "f"}


def deployment(port: int) -> Json:
    """Create the Deployment of a model server, placed by the scheduler."""
    container = {"name": "server", "image": "none", "ports": [{"containerPort": port}]}
    labels = LABELS | {f"{PREFIX}/workflow": "w", f"{PREFIX}/stage": "f"}
    template = {
        "metadata": {"labels": labels, "annotations": {f"{PREFIX}/rate": "5"}},
        "spec": {
            "schedulerName": "esg-scheduler",
            "containers": [container],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": LABELS},
            "template": template,
        },
    }


def server(port: int) -> Json:
    """Create the FunctionServer that selects the Deployment's pods."""
    return {
        "apiVersion": API_VERSION,
        "kind": "FunctionServer",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {
            "function": "f",
            "selector": {"matchLabels": LABELS},
            "protocol": "http-binary",
            "port": port,
        },
    }


def samples(url: str) -> dict[tuple[str, ...], float]:
    """Return the values of all series by name and labels' values."""
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def requests(counted: dict[tuple[str, ...], float]) -> float:
    """Return the requests of the workflow; the health port gives figures that are seconds old."""
    name = "esg_workflow_requests_total"
    return sum(counted[name, "default", result, "w"] for result in ("hit", "miss"))


def test_a_deployment_serves_and_its_cost_counts_once(esg):
    """The gateway counts requests and cost; the extender counts neither, even when the pods end."""
    documents = [profile("f", configuration(20, latency_ms=60)), workflow("w", "f")]
    harness = esg(nodes=2, gpus=1, documents=documents)
    apply_all(harness.api, documents_in(RBAC))
    model_port, port, health_port = free_port(), free_port(), free_port()
    url, health_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{health_port}"
    settings = {"ESG_GATEWAY_PODS": "false", "ESG_HEALTH_PORT": str(health_port)}
    with (
        running(
            player(harness.plane, model_port), f"http://127.0.0.1:{model_port}/v2/models/f/ready"
        ),
        running(gateway(harness.plane, port, environment=settings), f"{url}/v2/health/ready"),
        httpx.Client(base_url=url, trust_env=False, timeout=120) as client,
    ):
        apply_all(harness.api, [deployment(model_port), server(model_port)])
        state = "esg_gateway_pods", "f", "default", "ready"
        wait_until(lambda: samples(health_url).get(state) == REPLICAS, what="all pods are ready")
        assert answers(f"{url}/v2/models/w/ready")
        for value in range(REQUESTS):
            call(client, float(value))
        wait_until(lambda: requests(samples(health_url)) == REQUESTS, what="all are counted")
        counted = samples(health_url)
        assert counted["esg_cost_dollars_total", "default", "w"] > 0
        assert counted["esg_function_pods_wanted", "f", "default"] >= 1

        harness.api.delete("/apis/apps/v1/namespaces/default/deployments/f")
        wait_until(lambda: not harness.api.items(PODS), what="the Deployment's pods are deleted")
        wait_until(lambda: harness.snapshot_reservations() == {}, what="the extender has seen it")
        assert harness.metric_count("esg_cost_dollars_total", workflow="w") == 0
        assert harness.metric_count("esg_workflow_requests_total", workflow="w") == 0
