"""The CRDs express the models' rules, in the API server's dialect."""

from pathlib import Path
from typing import Annotated

import pytest
import yaml
from pydantic import BaseModel, Field

from scheduler.cluster.crds import crd_manifests, crds_yaml
from scheduler.cluster.schema import SchemaError, structural_schema

DEPLOYED = Path(__file__).parents[2] / "deploy" / "crds" / "esg-scheduler.io.yaml"


def spec_of(kind):
    """Return the schema of the kind's spec."""
    (crd,) = (m for m in crd_manifests() if m["spec"]["names"]["kind"] == kind)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"]["spec"]


def test_deployed_file_is_the_generated_one():
    """deploy/crds/ has the models' current schemas; if not: esg crds > that file."""
    assert DEPLOYED.read_text(encoding="utf-8") == crds_yaml()


def test_text_has_the_manifests():
    """The parsed YAML text equals the manifests."""
    assert list(yaml.safe_load_all(crds_yaml())) == crd_manifests()


@pytest.mark.parametrize("manifest", crd_manifests(), ids=lambda m: m["spec"]["names"]["kind"])
def test_every_node_has_a_description(manifest):
    """`kubectl explain` has a text for each field, of specs and statuses."""
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert [path for path, node in nodes(schema) if not node.get("description")] == []


def nodes(schema, path=""):
    """Yield path and schema of each node; the API server describes metadata itself."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        if (path, name) != ("", "metadata"):
            yield from nodes(inner, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in schema:
            yield from nodes(schema[part], f"{path}.{part}")


def test_statuses_are_written_apart_from_specs():
    """Each kind has the subresource, with conditions by type, and servers can be scaled."""
    for manifest in crd_manifests():
        [version] = manifest["spec"]["versions"]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        conditions = status["properties"]["conditions"]
        assert version["subresources"]["status"] == {}
        assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


def test_names_and_scopes():
    """Workflows and servers are namespaced, profiles cluster-wide; `kubectl get esg` lists all."""
    scopes = {
        m["metadata"]["name"]: (m["spec"]["scope"], m["spec"]["names"]["categories"])
        for m in crd_manifests()
    }

    assert scopes == {
        "workflows.esg-scheduler.io": ("Namespaced", ["esg"]),
        "functionprofiles.esg-scheduler.io": ("Cluster", ["esg"]),
        "functionservers.esg-scheduler.io": ("Namespaced", ["esg"]),
    }


def test_bounds():
    """An exclusive bound is a flag next to the number."""
    latency = spec_of("Workflow")["properties"]["slo"]["properties"]["latencyMs"]

    assert latency["minimum"] == 0
    assert latency["exclusiveMinimum"] is True
    assert latency["maximum"] == 86_400_000
    assert "exclusiveMaximum" not in latency


def test_optional_is_nullable():
    """A field that may be None is nullable, without a default."""
    gpus = spec_of("FunctionProfile")["properties"]["gpus"]
    p95 = gpus["items"]["properties"]["configurations"]["items"]["properties"]["p95Ms"]

    assert p95["type"] == "number"
    assert p95["nullable"] is True
    assert "default" not in p95


def test_lists_by_key():
    """Stages are keyed by name and GPUs by model, so patches merge and duplicates are refused."""
    stages = spec_of("Workflow")["properties"]["stages"]
    gpus = spec_of("FunctionProfile")["properties"]["gpus"]

    assert stages["x-kubernetes-list-map-keys"] == ["name"]
    assert gpus["x-kubernetes-list-map-keys"] == ["model"]


def test_no_keyword_that_a_crd_cannot_have():
    """The API server would refuse these keywords."""
    text = crds_yaml()

    for keyword in ("$ref", "$defs", "const:", "anyOf", "propertyNames", "title:"):
        assert keyword not in text


def test_maps():
    """A map of labels has the schema of its values; a pod template keeps its unknown fields."""
    properties = spec_of("FunctionServer")["properties"]
    labels = properties["selector"]["properties"]["matchLabels"]

    values = labels["additionalProperties"]
    assert (values["type"], values["maxLength"]) == ("string", 63)
    assert (labels["minProperties"], labels["maxProperties"]) == (1, 32)
    assert properties["template"]["x-kubernetes-preserve-unknown-fields"] is True
    assert crds_yaml().count("additionalProperties") == 1


def test_const_is_an_enum_of_one():
    """A literal becomes an enum."""

    class Model(BaseModel):
        kind: Annotated[str, Field(json_schema_extra={"const": "only"})]

    assert structural_schema(Model)["properties"]["kind"]["enum"] == ["only"]


def test_exclusive_upper_bound():
    """An exclusive upper bound is a flag too."""

    class Model(BaseModel):
        ratio: Annotated[float, Field(lt=1)]

    ratio = structural_schema(Model)["properties"]["ratio"]
    assert (ratio["maximum"], ratio["exclusiveMaximum"]) == (1, True)


def test_unsupported_keyword():
    """A model that no CRD can express is refused at generation, not by a user's cluster."""

    class Model(BaseModel):
        several: int | str

    class Stepped(BaseModel):
        step: Annotated[int, Field(multiple_of=3)]

    with pytest.raises(SchemaError, match="anyOf of several types"):
        structural_schema(Model)
    with pytest.raises(SchemaError, match="multipleOf"):
        structural_schema(Stepped)
