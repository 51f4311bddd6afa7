"""Rights of a FunctionServer's author, with tokens of ServiceAccounts on a real API server."""

import pytest

from scheduler.model.names import API_VERSION, LABEL_GATEWAY_GROUP
from tests.chart.installation import NAMESPACE, Bearer, Installation
from tests.chart.rendering import Json
from tests.testbed.api import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("helm_built")]
PATH = f"/apis/esg-scheduler.io/v1alpha1/namespaces/{NAMESPACE}/functionservers"
MOVED = "nobody would end the pods of its former group"
REFUSED = "so you may not have the gateway create them"
WRITES_SERVERS = {
    "apiGroups": ["esg-scheduler.io"],
    "resources": ["functionservers"],
    "verbs": ["create", "update", "patch"],
}
CREATES_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
TEMPLATE = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
SELECTOR = {"selector": {"matchLabels": {"app": "f"}}}


def author(installation: Installation, name: str, *rules: Json) -> Bearer:
    """Create a ServiceAccount with these rights in the namespace; return its client."""
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": name, "namespace": NAMESPACE}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    for document in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [subject],
        },
    ):
        installation.api.apply(document)
    return Bearer(installation.cluster, installation.token(name))


def server(name: str, pods: Json) -> Json:
    """Create a FunctionServer's document."""
    return {
        "apiVersion": API_VERSION,
        "kind": "FunctionServer",
        "metadata": {"name": name},
        "spec": {"function": "f", "protocol": "http-binary", "port": 8000, **pods},
    }


def test_only_who_may_create_pods_may_have_them_created(installation: Installation) -> None:
    """A template needs the right to create pods; a selector, and a change of labels, do not."""
    limited = author(installation, "limited", WRITES_SERVERS)
    full = author(installation, "full", WRITES_SERVERS, CREATES_PODS)
    wait_until(lambda: not full.create(PATH, server("of-full", TEMPLATE)), what="the Role works")
    wait_until(
        lambda: REFUSED in limited.create(PATH, server("early", TEMPLATE)),
        what="the policy is in force",
    )
    assert limited.create(PATH, server("of-limited", SELECTOR)) == ""
    changes: list[Json] = [
        {"spec": {"selector": None, **TEMPLATE}},
        {"spec": {"port": 9000, "selector": None, **TEMPLATE}},
    ]
    for change in changes:
        assert REFUSED in limited.patch(f"{PATH}/of-limited", change)
    assert limited.patch(f"{PATH}/of-limited", {"spec": {"port": 9000}}) == ""
    others = {"template": {"spec": {"containers": [{"name": "c", "image": "another"}]}}}
    assert REFUSED in limited.patch(f"{PATH}/of-full", {"spec": others})
    assert REFUSED in limited.patch(f"{PATH}/of-full", {"spec": {"maxPods": 50}})
    assert limited.patch(f"{PATH}/of-full", {"metadata": {"labels": {"a": "b"}}}) == ""
    assert full.patch(f"{PATH}/of-full", {"spec": others}) == ""
    for group in ("a", "b", None):
        moved = {"metadata": {"labels": {LABEL_GATEWAY_GROUP: group}}}
        assert (MOVED in full.patch(f"{PATH}/of-full", moved)) == (group is not None)
        assert full.patch(f"{PATH}/of-limited", moved) == ""  # its pods are somebody else's
    replaced = {"spec": {"template": None, **SELECTOR}}
    moved = {"metadata": {"labels": {LABEL_GATEWAY_GROUP: "a"}}}
    assert MOVED in limited.patch(f"{PATH}/of-full", {**replaced, **moved})
    assert limited.patch(f"{PATH}/of-full", replaced) == ""
    limited.close()
    full.close()
