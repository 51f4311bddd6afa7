"""Every right of deploy/ is used: a right without a use must have its reason here, or go."""

import httpx
import pytest

from scheduler.cluster.owner_lease import LEASE_NAME
from tests.e2e import webhook_process
from tests.e2e.conftest import USER
from tests.e2e.documents import RBAC, configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC as GATEWAY_RBAC
from tests.e2e.gateway_process import USER as GATEWAY
from tests.e2e.gateway_process import answers, gateway, running
from tests.e2e.harness import EVENTS, PODS
from tests.e2e.test_pods_from_demand import call, player, pool, server
from tests.testbed import audit
from tests.testbed.api import wait_until
from tests.testbed.audit import Right
from workbench.cluster.process import free_port

OWNER = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE_NAME}"
DOCUMENTS = "/apis/esg-scheduler.io/v1alpha1"
STATUSES = (
    f"{DOCUMENTS}/functionprofiles/f",
    f"{DOCUMENTS}/namespaces/default/functionservers/f-server",
)
ROLES = {USER: RBAC, GATEWAY: GATEWAY_RBAC, webhook_process.USER: webhook_process.RBAC}
REPEATED = Right("", "events", "patch")  # counts an Event that repeats after a minute
REPLICAS = (Right("coordination.k8s.io", "leases", verb) for verb in audit.READ_WRITE)
ACCESS = (
    Right("authentication.k8s.io", "tokenreviews", "create"),
    Right("authorization.k8s.io", "subjectaccessreviews", "create"),
)
UNUSED = {
    USER: {REPEATED},
    GATEWAY: {REPEATED, *REPLICAS, *ACCESS},  # test_gateway_replicas.py, test_gateway_access.py
    webhook_process.USER: set(),
}
"""Rights that this test does not need, each with its reason."""


@pytest.mark.slow
def test_every_right_is_used(esg, cluster):
    """A pod from demand, an unreachable SLO and an unknown pod: they need all other rights."""
    if cluster.api.exists(OWNER):  # of an earlier test: the extender is to create it
        cluster.api.delete(OWNER)
    earlier = len(cluster.audit_log.read_text(encoding="utf-8").splitlines())
    documents = [
        profile("f", configuration(20, latency_ms=60)),
        profile("slow", configuration(50, latency_ms=900)),
        workflow("w", "f", latency_ms=10_000),
        workflow("late", "slow", latency_ms=500),
    ]
    harness = esg(nodes=1, gpus=1, documents=documents)
    plane = harness.plane
    for document in documents_in(GATEWAY_RBAC):
        harness.api.apply(document)
    webhook_process.start(plane)
    model_port, port = free_port(), free_port()
    harness.create("hopeless", workflow="late", stage="slow")
    harness.wait_bound("hopeless")
    assert harness.get("/v1/explain/default/unknown").status_code == httpx.codes.NOT_FOUND
    url = f"http://127.0.0.1:{port}"
    with (
        running(player(plane, model_port), f"http://127.0.0.1:{model_port}/v2/models/f/ready"),
        running(gateway(plane, port), f"{url}/v2/health/ready"),
        httpx.Client(base_url=url, trust_env=False, timeout=120) as client,
    ):
        harness.api.apply(server(model_port, keepAliveS=3600, maxPods=1))
        wait_until(lambda: answers(f"{url}/v2/models/w/ready"), what="the gateway has the server")
        for path in STATUSES:
            wait_until(lambda path=path: harness.api.get(path).get("status"), what=path)
        call(client, 1.0)
        [pod] = pool(harness)
        # A pod that fails is an Event, and is deleted.
        path = f"{PODS}/{pod['metadata']['name']}"
        harness.api.patch(f"{path}/status", {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
        wait_until(
            lambda: harness.api.items(EVENTS, fieldSelector="reason=PodStartFailed"), what="Event"
        )
        wait_until(lambda: not harness.api.exists(path), what="the failed pod is deleted")
        wait_until(lambda: harness.event_messages("hopeless", "SLOCannotBeMet"), what="Event")

    for user, file in ROLES.items():
        granted = audit.granted_rights(documents_in(file))
        used = audit.used_rights(plane.audit_log, user, after_lines=earlier)
        assert sorted(map(str, granted - used - UNUSED[user])) == [], user
        assert sorted(map(str, used - granted)) == [], user
