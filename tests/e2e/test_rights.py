"""Rights of deploy/rbac.yaml: sufficient and minimal.

Every test of this folder runs the extender as the user with these rights.
"""

import httpx
import pytest

from tests.e2e.conftest import USER
from tests.e2e.documents import RBAC, configuration, documents_in, profile, workflow
from tests.e2e.harness import PODS
from tests.testbed import REPOSITORY
from tests.testbed.api import ApiError, wait_until
from tests.testbed.pods import function_pod

GATEWAY_RBAC = REPOSITORY / "deploy" / "gateway-rbac.yaml"
FORBIDDEN = httpx.codes.FORBIDDEN


def test_an_event_reports_an_unreachable_slo_with_minimal_rights(esg):
    """Listing, watching, binding and writing Events need only these rights."""
    documents = [profile("slow", configuration(50, latency_ms=900)), workflow("w", "slow")]
    documents[1]["spec"]["slo"]["latencyMs"] = 500
    harness = esg(nodes=1, gpus=1, documents=documents)

    harness.create("hopeless", workflow="w", stage="slow")
    harness.wait_bound("hopeless")

    wait_until(lambda: harness.event_messages("hopeless", "SLOCannotBeMet"), what="Event")
    [message] = harness.event_messages("hopeless", "SLOCannotBeMet")
    assert "the stages left take 900 ms" in message
    assert "50 % of a GPU" in message


def test_other_requests_are_refused(cluster):
    """The user may not change pods or nodes, read secrets, or read one object of a watched kind."""
    for document in documents_in(RBAC):
        cluster.api.apply(document)
    api = cluster.api_as(cluster.client_certificate(USER))
    wait_until(lambda: allowed(lambda: api.items("/api/v1/pods")), what="the role works")

    for attempt in (
        lambda: api.patch(f"{PODS}/any", {"metadata": {"labels": {"a": "b"}}}),
        lambda: api.delete(f"{PODS}/any"),
        lambda: api.patch("/api/v1/nodes/any", {"metadata": {"labels": {"a": "b"}}}),
        lambda: api.items("/api/v1/secrets"),
        lambda: api.items("/api/v1/events"),
        lambda: api.get("/api/v1/nodes/any"),
        lambda: api.get("/apis/esg-scheduler.io/v1alpha1/functionprofiles/any"),
        lambda: api.get("/apis/esg-scheduler.io/v1alpha1/namespaces/default/workflows/any"),
    ):
        assert not allowed(attempt)
    api.close()


def test_the_gateway_creates_pods_only_where_it_is_bound(cluster):
    """It may create and delete pods in `default` alone, bind none, and change no node."""
    for document in documents_in(GATEWAY_RBAC):
        cluster.api.apply(document)
    api = cluster.api_as(cluster.client_certificate("esg-gateway"))
    pod = function_pod("p", function="f")
    wait_until(lambda: allowed(lambda: api.create(pod)), what="the role works")
    elsewhere = {**pod, "metadata": {**pod["metadata"], "namespace": "kube-system"}}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
    }
    for attempt in (
        lambda: api.create(elsewhere),
        lambda: api.request("POST", f"{PODS}/p/binding", binding),
        lambda: api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}),
        lambda: api.items("/api/v1/secrets"),
        lambda: api.patch("/api/v1/nodes/any", {"metadata": {"labels": {"a": "b"}}}),
        lambda: api.get("/api/v1/nodes/any"),
    ):
        assert not allowed(attempt)
    assert allowed(lambda: api.delete(f"{PODS}/p"))
    api.close()


@pytest.mark.parametrize(
    "document",
    [*documents_in(RBAC), *documents_in(GATEWAY_RBAC)],
    ids=lambda document: document["metadata"]["name"],
)
def test_no_right_is_a_wildcard(document):
    """Every rule names its verbs, and its resources or paths."""
    for rule in document.get("rules", []):
        assert not any("*" in text for texts in rule.values() for text in texts)


def allowed(attempt):
    try:
        attempt()
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return False
    return True
