"""CustomResourceDefinitions of the documents, generated from their models."""

from typing import Any

import yaml

from scheduler.cluster.resource import FUNCTION_PROFILES, FUNCTION_SERVERS, WORKFLOWS, Resource
from scheduler.cluster.schema import Schema, structural_schema
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.function_server import FunctionServer
from scheduler.model.names import GROUP, VERSION

HEADER = "# Made from the models in scheduler/model by `esg crds`. Do not edit.\n"

_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def crd_manifests() -> list[Schema]:
    """Generate all definitions, as JSON for the API server."""
    return [_workflow(), _function_profile(), _function_server()]


def crds_yaml() -> str:
    """Generate all definitions as one YAML text, for ``kubectl apply -f -``."""
    return HEADER + yaml.safe_dump_all(crd_manifests(), sort_keys=False, width=100)


def _workflow() -> Schema:
    schema = structural_schema(Workflow)
    stages = schema["properties"]["spec"]["properties"]["stages"]
    _keyed_by(stages, "name")
    stages["x-kubernetes-validations"] = [
        {
            "rule": "self.all(s, s.after.all(b, self.exists(t, t.name == b) && b != s.name))",
            "message": "each 'after' must name another stage of this workflow",
        }
    ]
    # The server estimates the cost of a rule from the longest lists that the schema allows.
    stages["items"]["properties"]["after"]["maxItems"] = stages["maxItems"]
    _keyed_by(stages["items"]["properties"]["inputs"], "name")
    stages["items"]["x-kubernetes-validations"] = [
        {
            "rule": "self.inputs.all(i, self.after.exists(b, i.from.startsWith(b + '.')))",
            "message": "each 'from' must be STAGE.OUTPUT with a stage of 'after'",
        }
    ]
    return _definition(
        WORKFLOWS,
        schema,
        scope="Namespaced",
        short_names=["wf"],
        columns=[
            _column("SLO ms", "number", ".spec.slo.latencyMs"),
            _column("Objective", "number", ".spec.slo.objective"),
            _column("First stage", "string", ".spec.stages[0].name"),
            _AGE,
        ],
    )


def _function_profile() -> Schema:
    schema = structural_schema(FunctionProfile)
    _keyed_by(schema["properties"]["spec"]["properties"]["gpus"], "model")
    return _definition(
        FUNCTION_PROFILES,
        schema,
        scope="Cluster",
        short_names=["fp"],
        columns=[
            _column("First GPU model", "string", ".spec.gpus[0].model"),
            _column("Cold start ms", "number", ".spec.coldStartMs"),
            _AGE,
        ],
    )


def _function_server() -> Schema:
    schema = structural_schema(FunctionServer)
    schema["properties"]["spec"]["x-kubernetes-validations"] = [
        {
            "rule": "has(self.selector) != has(self.template)",
            "message": "give either a selector or a template",
        },
        {
            "rule": "!has(self.selector) || "
            "!(has(self.minPods) || has(self.maxPods) || has(self.keepAliveS))",
            "message": "minPods, maxPods and keepAliveS apply to a template",
        },
    ]
    return _definition(
        FUNCTION_SERVERS,
        schema,
        scope="Namespaced",
        short_names=["fs"],
        columns=[
            _column("Function", "string", ".spec.function"),
            _column("Protocol", "string", ".spec.protocol"),
            _column("Port", "integer", ".spec.port"),
            _AGE,
        ],
    )


def _definition(
    resource: Resource,
    schema: Schema,
    *,
    scope: str,
    short_names: list[str],
    columns: list[Schema],
) -> Schema:
    # The server defines these three itself; only the name of metadata may be narrowed.
    properties = schema["properties"]
    name = properties["metadata"]["properties"]["name"]
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    properties["metadata"] = {"type": "object", "properties": {"name": name}}
    schema["required"] = ["spec"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "shortNames": short_names,
                "categories": ["esg"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _keyed_by(items: Schema, key: str) -> None:
    items["x-kubernetes-list-type"] = "map"
    items["x-kubernetes-list-map-keys"] = [key]


def _column(name: str, kind: str, path: str) -> dict[str, Any]:
    # A path to several values would show only the first, under a name that says otherwise.
    return {"name": name, "type": kind, "jsonPath": path}
