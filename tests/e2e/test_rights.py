"""The rights of deploy/rbac.yaml: enough for everything, and no more than is used.

Every test of this folder runs the extender as the user that they are bound to.
"""

import httpx
import pytest

from tests.e2e.bed import PODS
from tests.e2e.conftest import USER
from tests.e2e.documents import RBAC, configuration, documents_in, profile, workflow
from tests.testbed.api import ApiError, wait_until

FORBIDDEN = httpx.codes.FORBIDDEN


def test_an_slo_that_cannot_be_met_is_told_under_least_rights(esg):
    """Listing, watching, binding and writing Events all work with these rights alone."""
    documents = [profile("slow", configuration(50, latency_ms=900)), workflow("w", "slow")]
    documents[1]["spec"]["slo"]["latencyMs"] = 500
    bed = esg(nodes=1, gpus=1, documents=documents)

    bed.create("hopeless", workflow="w", stage="slow")
    bed.wait_bound("hopeless")

    wait_until(lambda: bed.event_messages("hopeless", "SLOCannotBeMet"), what="Event")
    [told] = bed.event_messages("hopeless", "SLOCannotBeMet")
    assert "the stages left take 900 ms" in told
    assert "50 % of a GPU" in told


def test_nothing_beyond_is_allowed(cluster):
    """The user may not change pods or nodes, nor read secrets."""
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
    ):
        assert not allowed(attempt)
    api.close()


@pytest.mark.parametrize("document", documents_in(RBAC), ids=lambda document: document["kind"])
def test_no_right_is_a_wildcard(document):
    """Each verb and resource is written out."""
    for rule in document.get("rules", []):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


def allowed(attempt):
    try:
        attempt()
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return False
    return True
