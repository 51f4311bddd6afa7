"""Servers of functions: the pods that they select, or create from a template."""

import pytest

from scheduler.model.document_reader import DocumentError, parse_document
from scheduler.model.function_server import FunctionServer
from scheduler.model.pod_template import pod_of_template
from tests.raw_documents import SERVER, changed

TEMPLATE = {
    "metadata": {"labels": {"app": "f"}},
    "spec": {"containers": [{"name": "server", "image": "i"}]},
}
POOL = {"esg-scheduler.io/gateway-pool": "s"}


def server(**spec):
    raw = changed(
        changed(SERVER, "metadata.uid", "u1"), "metadata.creationTimestamp", "2026-01-02T03:04:05Z"
    )
    for name, value in spec.items():
        raw = changed(raw, f"spec.{name}", value)
    return FunctionServer.model_validate(raw)


def of_template(**spec):
    return server(selector=None, template=TEMPLATE, **spec)


def test_names_that_are_not_given_are_the_function_s():
    assert (server().model, server(model="m").model) == ("f", "m")
    assert (server().key, server().function_key) == (("default", "s"), ("default", "f"))
    assert server().created == "2026-01-02T03:04:05Z"
    assert FunctionServer.model_validate(SERVER).created == ""


def test_limits_of_pods_have_defaults():
    limited = of_template(minPods=2, maxPods=3, keepAliveS=60)
    assert (limited.spec.pods_min, limited.spec.pods_max) == (2, 3)
    assert limited.spec.keep_alive_ms == 60_000.0
    limits = of_template().spec
    assert limits.pods_min <= limits.pods_max
    assert limits.keep_alive_ms is None


def test_pods_of_a_selector_have_all_of_its_labels():
    selecting = server(selector={"matchLabels": {"app": "f", "tier": "gpu"}})
    assert selecting.selects({"app": "f", "tier": "gpu", "more": "x"})
    assert not selecting.selects({"app": "f"})


@pytest.mark.parametrize(
    ("labels", "controller_uid", "expected"),
    [(POOL, "u1", True), (POOL, "u2", False), (POOL, None, False), ({"app": "f"}, "u1", False)],
)
def test_pods_of_a_template_are_those_that_the_server_controls(labels, controller_uid, expected):
    """A label alone is no proof: anybody may set it, and the gateway ends its pods."""
    assert of_template().selects(labels, controller_uid) is expected


@pytest.mark.parametrize(("own", "expected"), [(None, "esg"), ("other", "other")])
def test_a_pod_has_the_template_s_parts_and_the_gateway_s(own, expected):
    """The gateway's labels replace none but equal ones, and the template stays as it is."""
    template = changed(TEMPLATE, "spec.schedulerName", own) if own else TEMPLATE
    pod = pod_of_template(
        template,
        name="p",
        labels=POOL,
        annotations={"a": "b"},
        owner=of_template().owner,
        scheduler_name="esg",
    )
    assert pod["metadata"] == {
        "name": "p",
        "labels": {"app": "f", **POOL},
        "annotations": {"a": "b"},
        "ownerReferences": [{
            "apiVersion": "esg-scheduler.io/v1alpha1", "kind": "FunctionServer", "name": "s",
            "uid": "u1", "controller": True,
        }],
    }  # fmt: skip
    assert pod["spec"] == {**TEMPLATE["spec"], "schedulerName": expected}
    assert "schedulerName" not in TEMPLATE["spec"]


def test_a_pod_without_a_scheduler_has_the_cluster_s():
    pod = pod_of_template(
        TEMPLATE, name="p", labels={}, annotations={}, owner={}, scheduler_name=""
    )
    assert "schedulerName" not in pod["spec"]


@pytest.mark.parametrize(
    ("spec", "pods_min"),
    [
        ({}, 0),
        ({"replicas": 3}, 3),
        ({"replicas": 3, "minPods": 4}, 4),
        ({"replicas": 30}, 20),
        ({"replicas": 3, "maxPods": 2}, 2),
    ],
)
def test_replicas_are_a_floor_between_the_limits(spec, pods_min):
    """The number that an autoscaler sets raises minPods, up to maxPods."""
    assert of_template(**spec).spec.pods_min == pods_min


def test_replicas_of_selected_pods_are_refused():
    """Selected pods have a Deployment that scales them; the default of the API server is none."""
    assert parse_document(changed(SERVER, "spec.replicas", 0), "here")
    with pytest.raises(DocumentError, match="replicas: applies to a template"):
        parse_document(changed(SERVER, "spec.replicas", 2), "here")
