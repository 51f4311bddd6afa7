"""The gateway's OpenAPI document: valid, complete, and true of requests and answers."""

import json
import re

import jsonschema
import pytest
import schemathesis
from referencing import Registry, Resource

from scheduler import __version__
from scheduler.gateway.http.routes import Action, find_route, templates
from tests.gateway.harness import gateway
from tests.gateway.messages import infer_body, rows_of

VALUES = {"namespace": "n", "workflow": "double", "stage": "s", "version": "1"}


async def document_of(service):
    status, headers, body = await service.request("GET", "/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    return json.loads(body)


def validator(document, name):
    """Return a validator of one schema of the document."""
    registry = Registry().with_resource("urn:d", Resource.opaque(document))
    return jsonschema.Draft202012Validator(
        {"$ref": f"urn:d#/components/schemas/{name}"}, registry=registry
    )


@pytest.mark.slow
async def test_the_document_is_valid_openapi():
    """Schemathesis holds it against the schema of OpenAPI 3.1, and reads all operations."""
    async with gateway() as service:
        document = await document_of(service)
    assert document["info"]["version"] == __version__
    schema = schemathesis.openapi.from_dict(document)
    schema.validate()
    operations = [operation.ok() for operation in schema.get_all_operations()]
    assert len(operations) == sum(len(item) for item in document["paths"].values())
    assert len({operation.definition.raw["operationId"] for operation in operations}) == len(
        operations
    )


async def test_each_path_of_the_document_is_a_route():
    """Every operation is documented with its method and its variables, and no other one."""
    async with gateway() as service:
        document = await document_of(service)
    assert document["paths"].keys() == {path for path, _ in templates()}
    assert {action for _, action in templates()} == set(Action)
    for path, action in templates():
        route = find_route(path.format(**VALUES).encode())
        assert route.action is action
        [(method, operation)] = document["paths"][path].items()
        assert method.upper().encode() in route.methods
        names = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", path))


@pytest.mark.parametrize("path", [path for path, _ in templates()])
async def test_answers_have_the_documented_form(path):
    """A valid request is answered by its schema of status 200, an invalid one by that of errors."""
    body, _ = infer_body(rows_of(1, 2), binary=False)
    async with gateway() as service:
        document = await document_of(service)
        [(method, operation)] = document["paths"][path].items()
        target, sent = path.format(**VALUES), body if method == "post" else b""
        bad = await service.request(method.upper(), target.replace("double", "unknown"), sent)
        status, _, answer = await service.request(method.upper(), target, sent)
    assert status == 200
    reference = operation["responses"]["200"]["content"]["application/json"]["schema"]
    validator(document, reference["$ref"].rpartition("/")[2]).validate(json.loads(answer))
    if bad[0] != 200:
        assert str(bad[0]) in operation["responses"]
        validator(document, "Error").validate(json.loads(bad[2]))
    if method == "post":
        validator(document, "InferRequest").validate(json.loads(body))


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": []},
        {"inputs": [{"name": "x", "datatype": "FP32", "data": [1]}]},
        {"inputs": [{"name": "x", "datatype": "FLOAT", "shape": [1], "data": [1]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [0], "data": []}]},
        {"outputs": [{}]},
        {"id": 5},
    ],
)
async def test_what_the_schema_refuses_the_gateway_refuses(change):
    body, _ = infer_body(rows_of(1, 1), binary=False)
    request = json.loads(body) | change
    async with gateway() as service:
        document = await document_of(service)
        path = "/v2/models/double/infer"
        status, _, _ = await service.request("POST", path, json.dumps(request).encode())
    assert status == 400
    assert not validator(document, "InferRequest").is_valid(request)
