"""OpenAPI document of the HTTP front, from its routes and the protocol's messages."""

from typing import Any, Final

from scheduler import __version__
from scheduler.gateway.calls import MODEL_VERSION
from scheduler.gateway.http.routes import Action, templates
from scheduler.oip.datatypes import DATATYPES
from scheduler.oip.tensor_reader import RANK_MAX
from scheduler.oip.work_limits import PARAMETERS_MAX, TENSORS_MAX

Schema = dict[str, Any]

_SUMMARIES: Final = {
    Action.INFER: "Run the workflow, or one stage alone",
    Action.SERVER_METADATA: "Name, version and extensions of the gateway",
    Action.LIVE: "Liveness of the gateway",
    Action.READY: "Readiness of the gateway",
    Action.MODEL_METADATA: "Inputs and outputs of the workflow or the stage",
    Action.MODEL_READY: "Readiness of the pods that serve the workflow or the stage",
    Action.OPENAPI: "This document",
}
_ANSWERS: Final = {
    Action.INFER: "InferResponse",
    Action.SERVER_METADATA: "ServerMetadata",
    Action.LIVE: "Live",
    Action.READY: "Ready",
    Action.MODEL_METADATA: "ModelMetadata",
    Action.MODEL_READY: "Ready",
    Action.OPENAPI: "Document",
}
_VARIABLES: Final[dict[str, Schema]] = {
    "namespace": {
        "description": "Namespace of the Workflow.",
        "schema": {"type": "string", "minLength": 1},
    },
    "workflow": {
        "description": "Name of the Workflow.",
        "schema": {"type": "string", "minLength": 1},
    },
    "stage": {
        "description": "Name of one stage, which runs alone.",
        "schema": {"type": "string", "minLength": 1},
    },
    "version": {
        "description": "The only version of each Workflow.",
        "schema": {"type": "string", "enum": [MODEL_VERSION]},
    },
}
_HEADERS: Final[dict[str, tuple[str, Schema]]] = {
    "Esg-Deadline-Ms": (
        "Time that the client still has, milliseconds.",
        {"type": "number", "minimum": 0},
    ),
    "Inference-Header-Content-Length": (
        "Bytes of the JSON in front of binary data.",
        {"type": "integer", "minimum": 0},
    ),
    "traceparent": ("Trace context for the model servers.", {"type": "string"}),
    "tracestate": ("Trace context for the model servers.", {"type": "string"}),
}
_ERRORS: Final = {
    400: "The request is invalid, or the model does not take it.",
    401: "Access control is on, and there is no valid token.",
    403: "The token's user lacks the right.",
    404: "There is no such workflow or stage.",
    405: "The path takes another method.",
    408: "The headers or the body did not come in time.",
    413: "The body is too large.",
    415: "The body is compressed.",
    429: "The gateway's queue or memory is full.",
    502: "A model server's answer is invalid.",
    503: "No pod serves a stage, the request cannot be in time, or the gateway stops.",
    504: "There is no answer within the limit.",
}
_READ_ERRORS: Final = (404, 405, 408, 502, 503, 504)
_TEMPORARY: Final = (429, 503)


def openapi_document() -> Schema:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "esg-scheduler gateway",
            "version": __version__,
            "description": "The Open Inference Protocol v2 for Workflows.",
        },
        "paths": {path: _path_item(path, action) for path, action in templates()},
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path_item(path: str, action: Action) -> Schema:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    is_infer = action is Action.INFER
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, **_VARIABLES[name]} for name in names
    ]
    operation: Schema = {
        "operationId": "_".join([action.name.lower(), *names]),
        "summary": _SUMMARIES[action],
        "parameters": parameters,
        "responses": _responses(action),
    }
    if not is_infer:
        return {"get": operation}
    parameters += [
        {"name": name, "in": "header", "description": description, "schema": schema}
        for name, (description, schema) in _HEADERS.items()
    ]
    operation["requestBody"] = {"required": True, "content": _content("InferRequest", binary=True)}
    operation["security"] = [{}, {"token": []}]
    return {"post": operation}


def _responses(action: Action) -> Schema:
    is_infer = action is Action.INFER
    responses: Schema = {
        "200": {
            "description": "The answer.",
            "content": _content(_ANSWERS[action], binary=is_infer),
        }
    }
    for status in _ERRORS if is_infer else _READ_ERRORS:
        name = "Ready" if status == 503 and _ANSWERS[action] == "Ready" else "Error"  # noqa: PLR2004
        response: Schema = {"description": _ERRORS[status], "content": _content(name)}
        if status in _TEMPORARY:
            response["headers"] = {
                "Retry-After": {
                    "description": "Seconds before another attempt.",
                    "schema": {"type": "integer", "minimum": 1},
                }
            }
        responses[str(status)] = response
    return responses


def _content(name: str, *, binary: bool = False) -> Schema:
    content: Schema = {"application/json": {"schema": _reference(name)}}
    if binary:
        content["application/octet-stream"] = {}  # JSON, and the binary data behind it
    return content


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


def _list(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def _schemas() -> Schema:
    text: Schema = {"type": "string"}
    texts = _list(text)
    datatype: Schema = {"type": "string", "enum": list(DATATYPES)}
    parameters = _reference("Parameters")
    shape = _list({"type": "integer", "minimum": 0}, minItems=1, maxItems=RANK_MAX)
    sent_shape = _list({"type": "integer", "minimum": 1}, minItems=1, maxItems=RANK_MAX)
    data: Schema = {"type": "array", "description": "Values, flat or nested like the shape."}
    described = _object(
        ["name", "datatype", "shape"],
        name=text,
        datatype=text,
        shape=_list({"type": "integer", "description": "-1: any size"}),
    )
    return {
        "InferRequest": _object(
            ["inputs"],
            id=text,
            parameters=parameters,
            inputs=_list(_reference("Input"), minItems=1, maxItems=TENSORS_MAX),
            outputs=_list(_reference("RequestedOutput"), maxItems=TENSORS_MAX),
        ),
        "InferResponse": _object(
            ["model_name", "outputs"],
            model_name=text,
            id=text,
            outputs=_list(_reference("Output")),
        ),
        "Input": _object(
            ["name", "datatype", "shape"],
            name=text,
            datatype=datatype,
            shape=sent_shape,
            parameters=parameters,
            data=data,
        ),
        "Output": _object(
            ["name", "datatype", "shape"],
            name=text,
            datatype=datatype,
            shape=shape,
            parameters=parameters,
            data=data,
        ),
        "RequestedOutput": _object(["name"], name=text, parameters=parameters),
        "Parameters": {
            "type": "object",
            "maxProperties": PARAMETERS_MAX,
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        },
        "ModelMetadata": _object(
            ["name", "inputs", "outputs"],
            name=text,
            versions=texts,
            platform=text,
            inputs=_list(described),
            outputs=_list(described),
        ),
        "ServerMetadata": _object(
            ["name", "version", "extensions"], name=text, version=text, extensions=texts
        ),
        "Live": _object(["live"], live={"type": "boolean"}),
        "Ready": {"anyOf": [_object(["ready"], ready={"type": "boolean"}), _reference("Error")]},
        "Error": _object(["error"], error=text),
        "Document": {"type": "object"},
    }
