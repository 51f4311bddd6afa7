"""ResourceQuota and PriorityClass: what Kubernetes counts and orders holds for function pods.

The pods go through the registered webhook, whose requests are what a quota counts.
"""

import os

import pytest

from tests.e2e import webhook_process
from tests.e2e.documents import configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.harness import EVENTS, PODS
from tests.e2e.test_pods_from_demand import player, pool, server
from tests.e2e.test_preemption import priority_class
from tests.testbed.api import ApiError, Json, wait_until
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from tests.testbed.pods import PREFIX, function_pod
from workbench.cluster.process import free_port

pytestmark = pytest.mark.skipif(
    EXTERNAL_KUBECONFIG in os.environ,
    reason="the webhook runs here: another API server cannot call it",
)
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
PERCENT = f"requests.{PREFIX}/gpu-percent"
DOCUMENTS = [profile("half", configuration(50)), workflow("w", "half")]
HOLDER = {f"{PREFIX}/pool": "holder"}


def quota(name: str, percent: int, *, priority_class: str = "") -> Json:
    """Create a quota of percent for all pods of the namespace, or for those of a class."""
    scopes = [{"scopeName": "PriorityClass", "operator": "In", "values": [priority_class]}]
    scope = {"scopeSelector": {"matchExpressions": scopes}} if priority_class else {}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": {PERCENT: str(percent)}, **scope},
    }


def used(api, name: str) -> str:
    """Return the percent that a quota counts; empty before its first status."""
    status = api.get(f"{QUOTAS}/{name}").get("status") or {}
    return (status.get("used") or {}).get(PERCENT, "")


@pytest.fixture
def start(esg, cluster):
    """A function that starts the scheduler with one GPU and the webhook, and creates a quota."""

    def starting(**options):
        for value in (10, 1000):
            cluster.api.create(priority_class(f"p{value}", value))
        harness = esg(nodes=1, gpus=1, documents=DOCUMENTS, managed_resources=True)
        webhook_process.start_registered(cluster)
        cluster.api.create(quota("gpus", **options))
        wait_until(lambda: used(cluster.api, "gpus") == "0", what="the quota has a status")
        return harness

    return starting


def test_a_quota_counts_what_the_webhook_requests(start):
    """Waiting pods count, members do not, and the API server says what is exceeded."""
    harness = start(percent=100)
    harness.create("running", function="half")
    harness.wait_bound("running")
    gated = function_pod("gated", function="half")
    gated["spec"]["schedulingGates"] = [{"name": "example.org/later"}]
    harness.api.create(gated)
    assert used(harness.api, "gpus") == "100"
    with pytest.raises(ApiError, match=r"exceeded quota: gpus, requested: .*gpu-percent=50"):
        harness.create("third", function="half")
    member = {"configuration": '{"batch": 1, "cpu": 1, "gpuPercent": 50}'}
    harness.create(
        "member", function="half", labels={f"{PREFIX}/pool": "member"}, annotations=member
    )
    amounts = {"cpu": "1", f"{PREFIX}/gpu-percent": "10"}
    with pytest.raises(ApiError, match="exceeded quota: gpus"):
        harness.create("holder", labels=HOLDER, resources=amounts)

    harness.api.delete(f"{PODS}/gated")
    wait_until(lambda: used(harness.api, "gpus") == "50", what="a deleted pod is not counted")
    harness.create("third", function="half")


def test_a_quota_limits_the_pods_of_a_priority_class(start):
    """Only pods of the class count, so nobody takes more than that much from others."""
    harness = start(percent=50, priority_class="p1000")
    harness.create("low-1", function="half", priority_class="p10")
    harness.create("low-2", function="half", priority_class="p10")
    harness.wait_bound("low-1", "low-2")
    harness.create("high", function="half", priority_class="p1000")
    harness.wait_bound("high")
    with pytest.raises(ApiError, match="exceeded quota: gpus"):
        harness.create("higher", function="half", priority_class="p1000")
    assert len(harness.wait_agreement()) == 2
    assert "default/high" in harness.cluster_reservations()


def test_a_class_that_preempts_nobody_waits(cluster, esg):
    """With `preemptionPolicy: Never` a pod of the highest priority has the next free share."""
    cluster.api.create({**priority_class("waits", 500), "preemptionPolicy": "Never"})
    cluster.api.create(priority_class("p10", 10))
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS, managed_resources=True)
    amounts = {"cpu": "1", f"{PREFIX}/gpu-percent": "50"}
    for name in ("low-1", "low-2"):
        harness.create(name, function="half", resources=amounts, priority_class="p10")
    harness.wait_bound("low-1", "low-2")
    harness.create("waits", function="half", resources=amounts, priority_class="waits")
    harness.wait_refused("waits", "Insufficient")
    assert harness.cluster_reservations().keys() == {"default/low-1", "default/low-2"}

    harness.api.delete(f"{PODS}/low-1")
    harness.wait_bound("waits")
    assert harness.node_of("low-2")


def test_the_gateway_serves_with_the_pods_that_a_quota_allows(start):
    """It has as many pods as fit, and an Event names the quota; a larger one is used at once."""
    harness = start(percent=50)
    api = harness.api
    for document in documents_in(RBAC):
        api.apply(document)
    model_port, port = free_port(), free_port()
    ready = f"http://127.0.0.1:{model_port}/v2/models/half/ready"
    url = f"http://127.0.0.1:{port}"
    with (
        running(player(harness.plane, model_port), ready),
        running(gateway(harness.plane, port), f"{url}/v2/health/ready"),
    ):
        document = server(model_port, minPods=2)
        document["spec"]["function"] = "half"
        api.apply(document)
        wait_until(lambda: events(api), what="an Event says why there is no second pod")
        assert "exceeded quota: gpus" in events(api)[0]["message"]
        assert len(pool(harness)) == 1
        wait_until(lambda: answers(f"{url}/v2/models/w/ready"), what="the workflow is served")

        api.patch(f"{QUOTAS}/gpus", {"spec": {"hard": {PERCENT: "100"}}})
        wait_until(lambda: len(pool(harness)) == 2, what="the second pod is created")


def events(api) -> list[Json]:
    """Return the Events of failed starts of the FunctionServer."""
    selector = "involvedObject.kind=FunctionServer,reason=PodStartFailed"
    return api.items(EVENTS, fieldSelector=selector)
