"""Convert pydantic's JSON schema to the structural schema of a CRD.

JSON schema (draft 2020-12) and the API server's dialect (OpenAPI v3.0, "structural") differ: the
latter has no references and no ``const``; ``exclusiveMinimum`` is a flag, null is a flag, and the
server prunes unknown fields itself, which contradicts ``additionalProperties: false``. The service
and ``esg check`` report what a schema cannot express (cycles, holes).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

Schema = dict[str, Any]

# Keywords with the same meaning in the API server's dialect.
_COPIED = frozenset({
    "type", "description", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "pattern", "default", "required",
})  # fmt: skip
# Keywords that `_structural` converts, or that the server does not need.
_CONVERTED = frozenset({
    "$ref", "$defs", "const", "exclusiveMinimum", "exclusiveMaximum", "anyOf", "properties",
    "items", "additionalProperties", "propertyNames", "title", "format",
})  # fmt: skip


class SchemaError(ValueError):
    """A model uses a keyword without a counterpart in a CRD; the message names it."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """Generate the structural schema of ``model``, by its field aliases.

    Raises:
        SchemaError: a keyword that this module does not handle.
    """
    whole = model.model_json_schema(
        by_alias=True, mode="validation", schema_generator=GenerateJsonSchema
    )
    return _structural(whole, whole.get("$defs", {}))


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return _structural({**definitions[name], **siblings}, definitions)
    if "anyOf" in schema:
        return _optional(schema, definitions)
    unknown = schema.keys() - _COPIED - _CONVERTED
    if unknown:
        raise SchemaError(
            f"a CRD cannot express: {', '.join(sorted(unknown))}; convert it in `_structural`"
        )
    result = {key: schema[key] for key in schema if key in _COPIED}
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
    result |= _other_properties(schema.get("additionalProperties"), definitions)
    if "items" in schema:
        result["items"] = _structural(schema["items"], definitions)
    return result


def _other_properties(others: Any, definitions: Mapping[str, Schema]) -> Schema:
    """Convert the schema of properties without a name: a map's values, or any that the user has."""
    if others is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if isinstance(others, Mapping):
        return {"additionalProperties": _structural(others, definitions)}
    return {}


def _optional(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    """Convert ``X | None`` to a nullable X; its default null means the same as no value."""
    options = [option for option in schema["anyOf"] if option != {"type": "null"}]
    if len(options) != 1:
        raise SchemaError("a CRD cannot express: anyOf of several types; use one type")
    siblings = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
    return {**_structural({**options[0], **siblings}, definitions), "nullable": True}
