"""Requests through the chart's gateway to MLServer on the real node."""

import pytest

from tests.node.functions import LABELS, PERCENT, PODS, START_TIMEOUT_S, Function, deployment, grant
from tests.node.mlserver import POOL, PROFILE, SPEC, WORKFLOW, Gateway, server
from tests.node.real_cluster import is_ready
from tests.testbed.api import Json, wait_until
from tests.testbed.mlserver_process import MODEL

pytestmark = pytest.mark.e2e


def mlserver_deployment() -> Json:
    """Create a Deployment of MLServer with the labels of the workflow."""
    document = deployment(MODEL)
    template = document["spec"]["template"]
    labels = dict(zip(LABELS, ("classify", MODEL), strict=True))
    template["metadata"]["labels"].update(labels)
    template["spec"] = SPEC
    return document


@pytest.fixture
def gateway(mlserver_gateway: Gateway) -> Gateway:
    """The gateway with a workflow of one model."""
    for document in (PROFILE, WORKFLOW):
        mlserver_gateway.api.apply(document)
    return mlserver_gateway


def test_a_deployment_answers_under_its_grant(gateway: Gateway) -> None:
    """The pod that the chart's scheduler placed gets batches, also of a gateway that restarted."""
    function = Function(gateway.release.cluster, mlserver_deployment())
    try:
        gateway.api.apply(server(selector={"matchLabels": {"app": MODEL}}))
        pod = function.running()
        assert grant(pod)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(PERCENT)
        wait_until(gateway.serves, what="the gateway has the server", timeout_s=START_TIMEOUT_S)
        gateway.call(range(8))
        assert gateway.in_time() == 8

        killed = gateway.pod()
        gateway.release.cluster.kill(killed, "gateway")
        wait_until(
            lambda: restarts(gateway.pod()) == restarts(killed) + 1 and is_ready(gateway.pod()),
            what="the gateway is ready again",
            timeout_s=START_TIMEOUT_S,
        )
        wait_until(gateway.serves, what="the gateway has the server", timeout_s=START_TIMEOUT_S)
        gateway.call(range(8, 12))
    finally:
        function.delete()


def restarts(pod: Json) -> int:
    """Return how often the only container of a pod has restarted."""
    [status] = pod["status"]["containerStatuses"]
    count: int = status["restartCount"]
    return count


def test_pods_from_demand_start_answer_and_end(gateway: Gateway) -> None:
    """The first request has a pod created, placed, started and warmed; idle, it goes again."""
    gateway.api.apply(server(template={"spec": SPEC}, maxPods=1, keepAliveS=5))
    wait_until(gateway.serves, what="the gateway has the server", timeout_s=START_TIMEOUT_S)
    gateway.call([100])
    [pod] = gateway.api.items(PODS, labelSelector=POOL)
    assert grant(pod)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(PERCENT)
    gateway.call(range(101, 109))
    wait_until(
        lambda: not gateway.api.items(PODS, labelSelector=POOL),
        what="the idle pod is deleted",
        timeout_s=START_TIMEOUT_S,
    )
