"""Who is admitted, who is denied with which words, and what is no AdmissionReview at all."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from scheduler.extender.scheduling import RefusedError
from scheduler.metrics import Metrics
from scheduler.model import names
from scheduler.model.plan import Plan, Prices
from scheduler.model.pod import FunctionPod
from scheduler.settings import Settings
from scheduler.webhook.app import create_webhook
from tests.webhook.pods import Json, admission, ask, operations, pod, review


def refusing(_: FunctionPod) -> Plan:
    """A planner that knows nothing."""
    raise RefusedError("workflow space/w is not known")


@pytest_asyncio.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = create_webhook(admission(), Settings(body_max_mib=1), Metrics(Prices()))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://hook") as client:
        yield client


async def test_the_answer_is_an_admission_review(client: httpx.AsyncClient) -> None:
    """The answer carries the question's uid, and the patch in base64."""
    answer = await client.post("/mutate", json=review(pod()))
    assert answer.status_code == 200
    body = answer.json()
    response = body.pop("response")
    assert body == {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    patch = operations(response.pop("patch"))
    assert response == {"uid": "u", "allowed": True, "patchType": "JSONPatch"}
    assert {operation["path"] for operation in patch} >= {"/spec/containers/0/env", "/spec/volumes"}


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
async def test_anything_but_a_new_function_pod_passes(
    client: httpx.AsyncClient, fields: Json
) -> None:
    """Other operations, kinds, subresources and pods are allowed as they are."""
    answer = await client.post("/mutate", json=review(pod(), **fields))
    assert answer.json()["response"] == {"uid": "u", "allowed": True}


async def test_a_dry_run_is_answered_like_any(client: httpx.AsyncClient) -> None:
    """There is no side effect to leave out."""
    wet = await client.post("/mutate", json=review(pod()))
    dry = await client.post("/mutate", json=review(pod(), dryRun=True))
    assert wet.json() == dry.json()


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (pod(labels={names.LABEL_WORKFLOW: "w"}), "label esg-scheduler.io/stage is missing"),
        (pod(labels={names.LABEL_FUNCTION: ""}), "label esg-scheduler.io/function is empty"),
        (pod(annotations={names.ANNOTATION_DEADLINE: "soon"}), "'soon' is not an RFC 3339 time"),
        (pod(annotations={names.ANNOTATION_QUEUED: "-1"}), "'-1' must be a whole number"),
        (pod(annotations={names.ANNOTATION_RATE: "1e99"}), "must be requests per second"),
        (pod(annotations={names.ANNOTATION_CONTAINER: "x"}), "is not a container of the pod"),
        (
            pod({"name": "m", "resources": {"limits": {"cpu": "much"}}}),
            "resources.limits.cpu: 'much' is no Kubernetes quantity",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_pod_is_denied_with_what_is_wrong(raw: Json, told: str) -> None:
    """422, and a sentence that names the label, annotation or field."""
    answer = ask(admission(), raw)
    assert not answer.allowed
    assert answer.patch is None
    assert answer.status is not None
    assert (answer.status.code, answer.status.reason) == (422, "Invalid")
    assert told in answer.status.message


def test_a_pod_that_cannot_be_planned_is_denied() -> None:
    """An unknown workflow, or ceilings that leave nothing: 403 with the planner's words."""
    answer = ask(admission(refusing), pod())
    assert not answer.allowed
    assert answer.status is not None
    assert answer.status.code == 403
    assert answer.status.message == "workflow space/w is not known"


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_privileged_container_is_denied(kind: str) -> None:
    """It would see all GPUs of its node, whichever container it is, so no grant could hold it."""
    raw = pod({"name": "main"})
    raw["spec"].setdefault(kind, []).append(
        {"name": "side", "securityContext": {"privileged": True}}
    )
    answer = ask(admission(), raw)
    assert answer.status is not None
    assert answer.status.code == 403
    assert "container 'side' is privileged" in answer.status.message
    raw["spec"][kind][-1]["securityContext"]["privileged"] = False
    assert ask(admission(), raw).allowed


def test_nothing_is_admitted_unplanned() -> None:
    """While the service is not ready a function pod is denied, and told to come again."""
    answer = ask(admission(unreadiness="the first list is not in yet"), pod())
    assert not answer.allowed
    assert answer.status is not None
    assert (answer.status.code, answer.status.reason) == (503, "ServiceUnavailable")
    assert answer.status.message == (
        "esg-scheduler is not ready: the first list is not in yet; try again"
    )


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 400, "the body is not JSON"),
        (b"[]", 422, "this is no AdmissionReview"),
        (b"{}", 422, "apiVersion: Field required"),
        (b" " * (2**20 + 1), 413, "the body is larger than 1,048,576 bytes"),
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
async def test_what_is_no_admission_review_gets_a_clear_error(
    client: httpx.AsyncClient, body: Any, status: int, told: str
) -> None:
    """4xx with a sentence that names the place; the webhook goes on."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await client.post("/mutate", content=content)
    assert answer.status_code == status
    assert told in answer.json()["detail"]
    assert (await client.post("/mutate", json=review(pod()))).json()["response"]["allowed"]
