"""The real API server accepts the CRDs and the samples, and refuses what the models refuse."""

from pathlib import Path

import pytest
import yaml

from scheduler.cluster.crds import crd_manifests
from scheduler.model.document_reader import DocumentError, parse_document
from tests import raw_documents
from tests.cluster.harness import wait_for_storage
from tests.raw_documents import PROFILE, SERVER, changed
from tests.testbed.api import ApiError, apply_all

pytestmark = pytest.mark.e2e

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"

STAGES = [
    {"name": "one", "function": "f"},
    {"name": "two", "function": "g", "after": ["one"]},
]
WORKFLOW = changed(raw_documents.WORKFLOW, "spec.stages", STAGES)
CONFIGURATION = "spec.gpus.0.configurations.0"
WRONG = [
    (WORKFLOW, "spec.slo.latencyMs", 0),
    (WORKFLOW, "spec.slo.latencyMs", 86_400_001),
    (WORKFLOW, "spec.slo.objective", 1),
    (WORKFLOW, "spec.slo", None),
    (WORKFLOW, "spec.stages", []),
    (WORKFLOW, "spec.stages.1.name", "one"),
    (WORKFLOW, "spec.stages.1.name", "Two"),
    (WORKFLOW, "spec.stages.1.function", ""),
    (WORKFLOW, "spec.stages.1.after", ["three"]),
    (WORKFLOW, "spec.stages.1.after", ["two"]),
    (WORKFLOW, "spec.stages.0.after", ["two"]),
    (WORKFLOW, "metadata.name", "a.b"),
    (WORKFLOW, "spec", None),
    (PROFILE, f"{CONFIGURATION}.gpuPercent", 101),
    (PROFILE, f"{CONFIGURATION}.gpuPercent", 0),
    (PROFILE, f"{CONFIGURATION}.batch", 1.5),
    (PROFILE, f"{CONFIGURATION}.latencyMs", 0),
    (PROFILE, f"{CONFIGURATION}.latencyMs", "fast"),
    (PROFILE, f"{CONFIGURATION}.p95Ms", -1),
    (PROFILE, f"{CONFIGURATION}.memoryMib", 0),
    (PROFILE, "spec.coldStartMs", -1),
    (PROFILE, "spec.gpus.0.model", ""),
    (PROFILE, "spec.gpus", PROFILE["spec"]["gpus"] * 2),
    (WORKFLOW, "spec.onLate", "never"),
    (WORKFLOW, "spec.stages.0.inputs", [{"name": "x", "from": "two.y"}]),
    (WORKFLOW, "spec.stages.1.inputs", [{"name": "x", "from": "one"}]),
    (WORKFLOW, "spec.stages.1.inputs", [{"name": "x", "from": "one.y"}] * 2),
    (SERVER, "spec.selector", None),
    (SERVER, "spec.selector.matchLabels", {}),
    (SERVER, "spec.selector.matchLabels", {"app": 1}),
    (SERVER, "spec.template", {"spec": {"containers": [{"name": "c"}]}}),
    (SERVER, "spec.minPods", 1),
    (SERVER, "spec.replicas", 1),
    (SERVER, "spec.protocol", "http"),
    (SERVER, "spec.port", 0),
    (SERVER, "spec.slots", 1.5),
]


@pytest.fixture
def served(cluster):
    """Apply and establish the CRDs on the control plane."""
    apply_all(cluster.api, crd_manifests())
    wait_for_storage(cluster)
    return cluster


def test_server_accepts_the_crds(served):
    """The server finds the schemas structural and the names free."""
    for manifest in crd_manifests():
        stored = served.api.get(served.api.path(manifest))
        conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"


def test_samples_are_accepted(served):
    """Every document in deploy/samples/ is stored unchanged."""
    documents = [
        document
        for path in sorted(SAMPLES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document
    ]
    assert len(documents) >= 10
    for document in documents:
        stored = served.api.create(document)
        read, expected = parse_document(stored, "server"), parse_document(document, "file")
        assert read is not None
        assert expected is not None
        assert read.spec == expected.spec


@pytest.mark.parametrize(
    "document", [WORKFLOW, PROFILE, SERVER], ids=["Workflow", "FunctionProfile", "FunctionServer"]
)
def test_minimal_document_is_accepted(served, document):
    """A document with only the required fields is accepted, and an optional one on top."""
    served.api.create(document)
    if document is PROFILE:
        served.api.apply(changed(document, f"{CONFIGURATION}.p95Ms", 105))


def test_what_the_gateway_reads(served):
    """Inputs by name and a reaction to late requests are stored, and a pod template as it is."""
    fed = [STAGES[0], STAGES[1] | {"inputs": [{"name": "x", "from": "one.y.z"}]}]
    workflow = changed(changed(WORKFLOW, "spec.stages", fed), "spec.onLate", "drop")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    server = changed(changed(SERVER, "spec.selector", None), "spec.template", template)

    stored = [
        parse_document(served.api.create(document), "server") for document in (workflow, server)
    ]

    assert stored[0].spec == parse_document(workflow, "here").spec
    assert stored[1].spec.template == template


@pytest.mark.parametrize(("document", "path", "value"), WRONG)
def test_invalid_documents_are_refused(served, document, path, value):
    """The server also refuses, with 422, whatever a schema can express of the models' rules."""
    wrong = changed(document, path, value)

    with pytest.raises(ApiError) as caught:
        served.api.create(wrong)
    with pytest.raises(DocumentError):
        parse_document(wrong, "here")

    assert caught.value.status in {400, 422}


def test_unknown_fields_are_refused_under_strict_validation(served):
    """Strict validation is kubectl's default."""
    wrong = changed(WORKFLOW, "spec.slo.latency", 5)

    with pytest.raises(ApiError, match="unknown field"):
        served.api.request(
            "POST", served.api.path(wrong, named=False), wrong, query={"fieldValidation": "Strict"}
        )


def test_columns(served):
    """`kubectl get` shows the SLO, the first stage and the pods, and the first GPU model."""
    served.api.create(WORKFLOW)
    served.api.create(PROFILE)
    status = f"{served.api.path(WORKFLOW)}/status"
    served.api.patch(status, {"status": {"pods": 3}})
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    rows = {}
    for plural in ("workflows", "functionprofiles"):
        path = f"/apis/esg-scheduler.io/v1alpha1/{plural}"
        body = served.api.request("GET", path, accept=table)
        names = [column["name"] for column in body["columnDefinitions"]]
        rows[plural] = dict(zip(names, body["rows"][0]["cells"], strict=True))

    assert rows["workflows"]["SLO ms"] == 500
    assert rows["workflows"]["First stage"] == "one"
    assert {"Ready", "Reason"} <= rows["workflows"].keys()
    assert rows["workflows"]["Pods"] == 3
    assert rows["functionprofiles"]["First GPU model"] == "A100"
