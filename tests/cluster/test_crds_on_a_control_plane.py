"""The real API server takes the CRDs and the samples, and refuses what the models refuse."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cluster.crds import crd_manifests
from scheduler.model.reading import DocumentError, parse_document
from tests.cluster.props import wait_for_storage
from tests.testbed.api import ApiError, apply_all
from tests.testbed.control_plane import ControlPlane

pytestmark = pytest.mark.e2e

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"
Raw = dict[str, Any]

WORKFLOW: Raw = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "w", "namespace": "default"},
    "spec": {
        "slo": {"latencyMs": 500},
        "stages": [
            {"name": "one", "function": "f"},
            {"name": "two", "function": "g", "after": ["one"]},
        ],
    },
}
PROFILE: Raw = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "FunctionProfile",
    "metadata": {"name": "f"},
    "spec": {
        "gpus": [
            {
                "model": "NVIDIA A100-SXM4-80GB",
                "configurations": [
                    {"batch": 1, "cpu": 1, "gpuPercent": 10, "latencyMs": 5.5, "memoryMib": 100}
                ],
            }
        ]
    },
}
CONFIGURATION = ("spec", "gpus", 0, "configurations", 0)
WRONG = [
    (WORKFLOW, ("spec", "slo", "latencyMs"), 0),
    (WORKFLOW, ("spec", "slo", "latencyMs"), 86_400_001),
    (WORKFLOW, ("spec", "slo", "objective"), 1),
    (WORKFLOW, ("spec", "slo"), None),
    (WORKFLOW, ("spec", "stages"), []),
    (WORKFLOW, ("spec", "stages", 1, "name"), "one"),
    (WORKFLOW, ("spec", "stages", 1, "name"), "Two"),
    (WORKFLOW, ("spec", "stages", 1, "function"), ""),
    (WORKFLOW, ("spec", "stages", 1, "after"), ["three"]),
    (WORKFLOW, ("spec", "stages", 1, "after"), ["two"]),
    (WORKFLOW, ("metadata", "name"), "a.b"),
    (WORKFLOW, ("spec",), None),
    (PROFILE, (*CONFIGURATION, "gpuPercent"), 101),
    (PROFILE, (*CONFIGURATION, "gpuPercent"), 0),
    (PROFILE, (*CONFIGURATION, "batch"), 1.5),
    (PROFILE, (*CONFIGURATION, "latencyMs"), 0),
    (PROFILE, (*CONFIGURATION, "latencyMs"), "fast"),
    (PROFILE, (*CONFIGURATION, "p95Ms"), -1),
    (PROFILE, (*CONFIGURATION, "memoryMib"), 0),
    (PROFILE, ("spec", "coldStartMs"), -1),
    (PROFILE, ("spec", "gpus", 0, "model"), ""),
    (PROFILE, ("spec", "gpus"), PROFILE["spec"]["gpus"] * 2),
]


@pytest.fixture
def served(cluster: ControlPlane) -> ControlPlane:
    """The control plane with the CRDs, applied and established."""
    apply_all(cluster.api, crd_manifests())
    wait_for_storage(cluster)
    return cluster


def changed(document: Raw, path: tuple[str | int, ...], value: Any) -> Raw:
    """A copy of the document with another value at that place; None takes it away."""
    copied = copy.deepcopy(document)
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copied


def test_nothing_to_object_to(served: ControlPlane) -> None:
    """The server finds the schemas structural and the names free."""
    for manifest in crd_manifests():
        stored = served.api.get(served.api.path(manifest))
        conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"


def test_the_samples_are_taken(served: ControlPlane) -> None:
    """Every document in deploy/samples/ is stored, and reads back as what it was."""
    documents = [
        document
        for path in sorted(SAMPLES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document
    ]
    assert len(documents) >= 10
    for document in documents:
        stored = served.api.create(document)
        read, wanted = parse_document(stored, "server"), parse_document(document, "file")
        assert read is not None
        assert wanted is not None
        assert read.spec == wanted.spec


@pytest.mark.parametrize("document", [WORKFLOW, PROFILE], ids=["Workflow", "FunctionProfile"])
def test_the_least_is_taken(served: ControlPlane, document: Raw) -> None:
    """A document with no more than it must have is taken, and so is a null where it may be."""
    served.api.create(document)
    if document is PROFILE:
        served.api.apply(changed(document, (*CONFIGURATION, "p95Ms"), 6.5))


@pytest.mark.parametrize(("document", "path", "value"), WRONG)
def test_wrong_ones_are_refused(
    served: ControlPlane, document: Raw, path: tuple[str | int, ...], value: Any
) -> None:
    """What the models refuse and a schema can say, the server refuses too, with 422."""
    wrong = changed(document, path, value)

    with pytest.raises(ApiError) as caught:
        served.api.create(wrong)
    with pytest.raises(DocumentError):
        parse_document(wrong, "here")

    assert caught.value.status in {400, 422}


def test_unknown_fields_are_refused_when_asked(served: ControlPlane) -> None:
    """Unknown fields are an error under strict validation, which is kubectl's default."""
    wrong = changed(WORKFLOW, ("spec", "slo", "latency"), 5)

    with pytest.raises(ApiError, match="unknown field"):
        served.api.request(
            "POST", served.api.path(wrong, named=False), wrong, query={"fieldValidation": "Strict"}
        )


def test_columns(served: ControlPlane) -> None:
    """`kubectl get` shows the SLO and the first stage, and the first GPU model."""
    served.api.create(WORKFLOW)
    served.api.create(PROFILE)
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    rows = {}
    for plural in ("workflows", "functionprofiles"):
        answer = served.api._http.get(f"/apis/esg-scheduler.io/v1alpha1/{plural}", headers=table)
        told = answer.json()
        names = [column["name"] for column in told["columnDefinitions"]]
        rows[plural] = dict(zip(names, told["rows"][0]["cells"], strict=True))

    assert rows["workflows"]["SLO ms"] == 500
    assert rows["workflows"]["First stage"] == "one"
    assert rows["functionprofiles"]["First GPU model"] == "NVIDIA A100-SXM4-80GB"
