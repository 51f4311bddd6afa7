"""CustomResourceDefinitions of the documents, generated from their models."""

from typing import Any

import yaml

from scheduler.cluster.resource import FUNCTION_PROFILES, FUNCTION_SERVERS, WORKFLOWS, Resource
from scheduler.cluster.schema import Schema, structural_schema
from scheduler.model.document_fields import DocumentModel
from scheduler.model.documents import STAGES_MAX, FunctionProfile, Workflow
from scheduler.model.function_server import FunctionServer
from scheduler.model.names import GROUP, VERSION
from scheduler.model.status import FunctionProfileStatus, FunctionServerStatus, WorkflowStatus

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
        },
        {
            "rule": _no_cycle(),
            "message": "a cycle: some stages come after themselves; remove one 'after'",
        },
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
            _condition("Accepted"),
            _condition("Attainable"),
            *_readiness(),
            _column("Pods", "integer", ".status.pods"),
            _column("First stage", "string", ".spec.stages[0].name", wide=True),
            _AGE,
        ],
        status=WorkflowStatus,
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
            _condition("Accepted"),
            _condition("Used"),
            _AGE,
        ],
        status=FunctionProfileStatus,
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
        {
            "rule": "!has(self.selector) || self.replicas == 0",
            "message": "replicas applies to a template; scale selected pods by their own "
            "Deployment",
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
            _column("Port", "integer", ".spec.port", wide=True),
            *_readiness(),
            _column("Pods", "integer", ".status.replicas"),
            _column("Wanted", "integer", ".status.wantedReplicas"),
            _AGE,
        ],
        status=FunctionServerStatus,
        subresources={
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }
        },
    )


def _definition(  # noqa: PLR0913 - each by its name
    resource: Resource,
    schema: Schema,
    *,
    scope: str,
    short_names: list[str],
    columns: list[Schema],
    status: type[DocumentModel],
    subresources: Schema | None = None,
) -> Schema:
    # The server defines these three itself; only the name of metadata may be narrowed.
    properties = schema["properties"]
    name = properties["metadata"]["properties"]["name"]
    properties["apiVersion"] = {"type": "string", "description": f"{GROUP}/{VERSION}"}
    properties["kind"] = {"type": "string", "description": resource.kind}
    properties["metadata"] = {"type": "object", "properties": {"name": name}}
    properties["status"] = structural_schema(status)
    _keyed_by(properties["status"]["properties"]["conditions"], "type")
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
                    "subresources": {"status": {}, **(subresources or {})},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _keyed_by(items: Schema, key: str) -> None:
    items["x-kubernetes-list-type"] = "map"
    items["x-kubernetes-list-map-keys"] = [key]


def _no_cycle() -> str:
    """Build the rule that every stage can be reached: CEL has no recursion, and no variables.

    Stages without `after` are reached at first; then, as often as there may be stages, those whose
    `after` are reached. A list of one element binds its element to a name.
    """
    rule = f"r{STAGES_MAX}.size() == self.size()"
    for step in range(STAGES_MAX, 1, -1):
        before = f"r{step - 1}"
        reached = f"self.filter(s, s.after.all(b, b in {before})).map(s, s.name)"
        rule = f"[{reached}].all(r{step}, {rule})"
    return f"[self.filter(s, s.after.size() == 0).map(s, s.name)].all(r1, {rule})"


def _readiness() -> list[Schema]:
    reason = '.status.conditions[?(@.type=="Ready")].reason'
    return [_condition("Ready"), _column("Reason", "string", reason)]


def _condition(name: str) -> Schema:
    return _column(name, "string", f'.status.conditions[?(@.type=="{name}")].status')


def _column(name: str, kind: str, path: str, *, wide: bool = False) -> dict[str, Any]:
    # A path to several values would show only the first, under a name that says otherwise.
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": 1} if wide else column
