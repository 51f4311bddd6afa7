"""Kubernetes' HorizontalPodAutoscaler on the `scale` subresource of a FunctionServer."""

import os
import re

import pytest
import yaml

from tests.e2e.documents import configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.test_pods_from_demand import player, pool, server
from tests.testbed import REPOSITORY
from tests.testbed.api import Json, wait_until
from tests.testbed.external_metrics import external_metrics
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from workbench.cluster.process import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        EXTERNAL_KUBECONFIG in os.environ,
        reason="the metrics are served here: another API server cannot read them",
    ),
]
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
SERVER = "/apis/esg-scheduler.io/v1alpha1/namespaces/default/functionservers/f-server"
METRIC = "waiting_orders"


def autoscaler() -> Json:
    """Return the HorizontalPodAutoscaler of docs/status.md, for the test's FunctionServer.

    It scales down at once: Kubernetes' own window is five minutes.
    """
    page = (REPOSITORY / "docs" / "status.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    kind = "HorizontalPodAutoscaler"
    [document] = [d for block in blocks for d in yaml.safe_load_all(block) if d.get("kind") == kind]
    document["metadata"] = {"name": "f-server", "namespace": "default"}
    document["spec"]["scaleTargetRef"]["name"] = "f-server"
    document["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    return document


def test_an_autoscaler_sets_the_pods_of_a_function_server(esg):
    """The real controller scales up and down by a metric, within its limits and `maxPods`.

    `replicas: 0` is switched off for it, and what it sets is the least number of pods.
    """
    documents = [profile("f", configuration(20, latency_ms=60)), workflow("w", "f")]
    harness = esg(nodes=2, gpus=1, documents=documents)
    plane, api = harness.plane, harness.api
    for document in documents_in(RBAC):
        api.apply(document)
    model_port, port = free_port(), free_port()
    ready = f"http://127.0.0.1:{model_port}/v2/models/f/ready"
    with (
        external_metrics(plane) as values,
        running(player(plane, model_port), ready),
        running(gateway(plane, port), f"http://127.0.0.1:{port}/v2/health/ready"),
    ):
        api.apply(server(model_port, maxPods=4))
        wait_until(
            lambda: answers(f"http://127.0.0.1:{port}/v2/models/w/ready"),
            what="the gateway has the server",
        )
        values[METRIC] = 30
        api.create(autoscaler())
        wait_until(lambda: condition(api, "ScalingActive") == "ScalingDisabled", what="0 is off")
        assert pool(harness) == []

        api.patch(f"{SERVER}/scale", {"spec": {"replicas": 1}})
        wait_until(lambda: api.get(f"{SERVER}/scale")["spec"]["replicas"] == 3, what="30 of 10")
        wait_until(lambda: len(pool(harness)) == 3, what="the gateway has three pods")
        wait_until(
            lambda: api.get(SERVER)["status"].get("replicas") == 3, what="the status says so"
        )

        values[METRIC] = 1_000
        wait_until(lambda: api.get(f"{SERVER}/scale")["spec"]["replicas"] == 4, what="its maximum")
        wait_until(lambda: len(pool(harness)) == 4, what="four pods")

        values[METRIC] = 5
        wait_until(lambda: api.get(f"{SERVER}/scale")["spec"]["replicas"] == 1, what="its minimum")
        wait_until(lambda: len(pool(harness)) == 1, what="idle pods go", timeout_s=300)
        api.delete(AUTOSCALERS)


def condition(api, kind):
    """Return the reason of a condition of the autoscaler; empty without it."""
    status = api.get(f"{AUTOSCALERS}/f-server").get("status") or {}
    reasons = [c["reason"] for c in status.get("conditions") or [] if c["type"] == kind]
    return reasons[0] if reasons else ""
