"""Admission: verdicts, messages and malformed AdmissionReviews."""

import json

import httpx
import pytest
import pytest_asyncio

from scheduler.model import names
from scheduler.server.errors import RefusedError
from scheduler.webhook.app import create_webhook
from scheduler.webhook.metrics import WebhookMetrics
from tests.webhook.factories import admission, operations, pod, respond, review


def refusing(_):
    """Plan nothing: the workflow is unknown."""
    raise RefusedError("workflow space/w is not known")


@pytest_asyncio.fixture
async def client():
    app = create_webhook(admission(), WebhookMetrics())
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://hook") as client:
        yield client


async def test_response_is_an_admission_review(client):
    """The response carries the request's uid, and the patch in base64."""
    answer = await client.post("/mutate", json=review(pod()))
    assert answer.status_code == 200
    body = answer.json()
    response = body.pop("response")
    assert body == {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    [operation] = operations(response.pop("patch"))
    assert response == {"uid": "u", "allowed": True, "patchType": "JSONPatch"}
    assert operation["path"] == "/spec"
    assert operation["value"].keys() >= {"containers", "volumes"}
    assert "env" in operation["value"]["containers"][0]


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT", "subResource": "exec"},
        {"subResource": "ephemeralcontainers", "operation": "UPDATE"},
        {"subResource": "binding"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "x.io", "version": "v1", "kind": "Pod"}},
        {"object": {"metadata": {"labels": 7}}},
        {"object": {}},
        {"object": None},
        {"object": pod(labels={"app": "x"})},
    ],
    ids=str,
)
async def test_only_new_function_pods_are_mutated(client, fields):
    """Other operations, kinds, subresources and pods pass unchanged."""
    answer = await client.post("/mutate", json=review(pod(), **fields))
    assert answer.json()["response"] == {"uid": "u", "allowed": True}


async def test_dry_run_gets_the_same_response(client):
    """No side effect has to be left out."""
    wet = await client.post("/mutate", json=review(pod()))
    dry = await client.post("/mutate", json=review(pod(), dryRun=True))
    assert wet.json() == dry.json()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (pod(labels={names.LABEL_WORKFLOW: "w"}), "label esg-scheduler.io/stage is missing"),
        (pod(labels={names.LABEL_FUNCTION: ""}), "label esg-scheduler.io/function is empty"),
        (pod(annotations={names.ANNOTATION_DEADLINE: "soon"}), "'soon' is not an RFC 3339 time"),
        (pod(annotations={names.ANNOTATION_QUEUED: "-1"}), "'-1' must be a whole number"),
        (pod(annotations={names.ANNOTATION_RATE: "1e99"}), "must be requests per second"),
        (pod(annotations={names.ANNOTATION_CONFIGURATION: "{}"}), "is not a configuration"),
        (pod(annotations={names.ANNOTATION_CONTAINER: "x"}), "is not a container of the pod"),
        (
            pod({"name": "m", "resources": {"limits": {"cpu": "much"}}}),
            "resources.limits.cpu: 'much' is no Kubernetes quantity",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_pod_is_denied_with_the_reason(raw, message):
    """The code is 422; the message names the label, annotation or field."""
    answer = respond(admission(), raw)
    assert not answer.allowed
    assert answer.patch is None
    assert answer.status is not None
    assert (answer.status.code, answer.status.reason) == (422, "Invalid")
    assert message in answer.status.message


def test_pod_without_plan_is_denied():
    """An unknown workflow, or ceilings without a configuration: 403 with the planner's message."""
    answer = respond(admission(refusing), pod())
    assert not answer.allowed
    assert answer.status is not None
    assert answer.status.code == 403
    assert answer.status.message == "workflow space/w is not known"


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_privileged_container_is_denied(kind):
    """Any privileged container would see all GPUs of its node, whatever the grant."""
    raw = pod({"name": "main"})
    raw["spec"].setdefault(kind, []).append(
        {"name": "side", "securityContext": {"privileged": True}}
    )
    answer = respond(admission(), raw)
    assert answer.status is not None
    assert answer.status.code == 403
    assert "container 'side' is privileged" in answer.status.message
    raw["spec"][kind][-1]["securityContext"]["privileged"] = False
    assert respond(admission(), raw).allowed


def test_pod_with_a_node_is_denied():
    """It would take part in kube-scheduler's sum without a share, and run without limits."""
    raw = pod(workflow="w", stage="a")
    raw["spec"]["nodeName"] = "n1"
    answer = respond(admission(), raw)
    assert answer.status is not None
    assert answer.status.code == 422
    assert "spec.nodeName is n1" in answer.status.message


def test_function_pod_is_denied_while_not_ready():
    """The message says why, and to retry."""
    answer = respond(admission(not_ready_reason="the first list is not in yet"), pod())
    assert not answer.allowed
    assert answer.status is not None
    assert (answer.status.code, answer.status.reason) == (503, "ServiceUnavailable")
    assert answer.status.message == (
        "esg-scheduler is not ready: the first list is not in yet; try again"
    )


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "the body is not JSON"),
        (b"[]", 422, "this is no AdmissionReview"),
        (b"{}", 422, "apiVersion: Field required"),
        (b" " * (4 * 2**20 + 1), 413, "the body is larger than 4,194,304 bytes"),
        (review(pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}, 422, "admission.k8s.io/v1"),
        (review(pod()) | {"request": None}, 422, "request"),
        (review(pod(), uid=""), 422, "request.uid"),
        (review(pod(), object="x"), 422, "request.object"),
        (review(pod() | {"spec": {"containers": []}}), 422, "request.object.spec.containers"),
        (review(pod() | {"spec": None}), 422, "request.object.spec"),
        (review(pod({"name": "m", "env": [{}]})), 422, "spec.containers.0.env.0.name"),
        (review(pod({"name": "m", "volumeMounts": ["/x"]})), 422, "volumeMounts.0"),
        (review(pod(annotations={"a": 1})), 422, "request.object.metadata.annotations.a"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_malformed_admission_review_gets_a_clear_error(client, body, status, message):
    """The answer is 4xx and names the field; the webhook continues to work."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await client.post("/mutate", content=content)
    assert answer.status_code == status
    assert message in answer.json()["detail"]
    assert (await client.post("/mutate", json=review(pod()))).json()["response"]["allowed"]
