"""From pydantic's JSON schema to the structural schema that a CRD may have.

JSON schema (draft 2020-12) and the API server's dialect (OpenAPI v3.0, "structural") differ: no
references, no ``const``, ``exclusiveMinimum`` is a flag, null is a flag, and unknown fields are
pruned by the server itself, which ``additionalProperties: false`` would contradict. What the models
check and a schema cannot say (cycles, holes) is told by the service and by ``esg check``.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

Schema = dict[str, Any]

# The API server's dialect has these with pydantic's meaning.
_KEPT = frozenset(
    {
        "type",
        "description",
        "enum",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "pattern",
        "default",
        "required",
    }
)
# Said otherwise below, or saying nothing that the server needs.
_TURNED = frozenset(
    {
        "$ref",
        "$defs",
        "const",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "anyOf",
        "properties",
        "items",
        "additionalProperties",
        "title",
        "format",
    }
)


class SchemaError(ValueError):
    """A model says something that has no counterpart in a CRD; the message names the keyword."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of ``model``, by its field aliases.

    Raises:
        SchemaError: a keyword that nobody has thought about yet.
    """
    whole = model.model_json_schema(
        by_alias=True, mode="validation", schema_generator=GenerateJsonSchema
    )
    return _structural(whole, whole.get("$defs", {}))


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _structural({**definitions[name], **beside}, definitions)
    if "anyOf" in schema:
        return _optional(schema, definitions)
    unknown = schema.keys() - _KEPT - _TURNED
    if unknown:
        raise SchemaError(f"no CRD can say {', '.join(sorted(unknown))}")
    result = {key: schema[key] for key in schema if key in _KEPT}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    for bound, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if flag in schema:
            result[bound] = schema[flag]
            result[flag] = True
    if "properties" in schema:
        result["properties"] = {
            name: _structural(inner, definitions) for name, inner in schema["properties"].items()
        }
    if "items" in schema:
        result["items"] = _structural(schema["items"], definitions)
    return result


def _optional(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    """``X | None`` as a nullable X; its default null says the same as leaving it out."""
    others = [option for option in schema["anyOf"] if option != {"type": "null"}]
    if len(others) != 1:
        raise SchemaError("no CRD can say anyOf of several types")
    beside = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
    return {**_structural({**others[0], **beside}, definitions), "nullable": True}
