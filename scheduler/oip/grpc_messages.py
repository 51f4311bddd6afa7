"""Messages of the protocol's gRPC form: service ``inference.GRPCInferenceService``."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from scheduler.oip.errors import MessageError
from scheduler.oip.tensor import Tensor
from scheduler.protobuf import (
    BOOL,
    BYTES,
    DOUBLE,
    INT64,
    TEXT,
    UINT64,
    Field,
    FieldBudget,
    ProtobufError,
    Schema,
    decode,
    encode,
    length_prefix,
)

SERVICE: Final = "inference.GRPCInferenceService"
RAW: Final = "raw_contents"
"""Key of the bytes of all tensors, in `INFER_REQUEST` and `INFER_RESPONSE`."""
_INT64_MAX: Final = 2**63 - 1

_PARAMETER: Final = {
    1: Field("bool_param", BOOL),
    2: Field("int64_param", INT64),
    3: Field("string_param", TEXT),
    4: Field("double_param", DOUBLE),
    5: Field("uint64_param", UINT64),
}
_PARAMETERS: Final = Field(
    "parameters", {1: Field("key", TEXT), 2: Field("value", _PARAMETER)}, is_repeated=True
)
_TENSOR: Final = {
    1: Field("name", TEXT),
    2: Field("datatype", TEXT),
    3: Field("shape", INT64, is_repeated=True),
}
_TENSOR_WITH_DATA: Final = {
    **_TENSOR,
    4: _PARAMETERS,
    5: Field("contents", BYTES, is_repeated=True),  # read by `grpc_contents`
}
MODEL_OF_REQUEST: Final = {1: Field("model_name", TEXT), 2: Field("model_version", TEXT)}
_MODEL: Final = {**MODEL_OF_REQUEST, 3: Field("id", TEXT), 4: _PARAMETERS}
INFER_REQUEST: Final = {
    **_MODEL,
    5: Field("inputs", _TENSOR_WITH_DATA, is_repeated=True),
    6: Field("outputs", {1: Field("name", TEXT), 2: _PARAMETERS}, is_repeated=True),
    7: Field(RAW, BYTES, is_repeated=True),
}
INFER_RESPONSE: Final = {
    **_MODEL,
    5: Field("outputs", _TENSOR_WITH_DATA, is_repeated=True),
    6: Field(RAW, BYTES, is_repeated=True),
}
MODEL_REQUEST: Final = {1: Field("name", TEXT), 2: Field("version", TEXT)}
LIVE: Final = {1: Field("live", BOOL)}
READY: Final = {1: Field("ready", BOOL)}
SERVER_METADATA: Final = {
    1: Field("name", TEXT),
    2: Field("version", TEXT),
    3: Field("extensions", TEXT, is_repeated=True),
}
MODEL_METADATA: Final = {
    1: Field("name", TEXT),
    2: Field("versions", TEXT, is_repeated=True),
    3: Field("platform", TEXT),
    4: Field("inputs", _TENSOR, is_repeated=True),
    5: Field("outputs", _TENSOR, is_repeated=True),
}


def decode_message(
    schema: Schema, body: bytes | memoryview, budget: FieldBudget | None = None
) -> dict[str, Any]:
    """Read the known fields of a message.

    Raises:
        MessageError: the bytes are no such message, or the budget is spent.
    """
    try:
        return decode(schema, memoryview(body), None, budget)
    except ProtobufError as error:
        raise message_error(error) from None


def message_error(error: ProtobufError) -> MessageError:
    """Return the error of a message as its sender gets it."""
    return MessageError(str(error), 413 if error.is_too_long else 400)


def decode_infer(
    schema: Schema, body: bytes | memoryview, budget: FieldBudget | None = None
) -> dict[str, Any]:
    """Read `INFER_REQUEST` or `INFER_RESPONSE` in the form of the protocol's JSON.

    Raises:
        MessageError: the bytes are no such message, or the budget is spent.
    """
    document = decode_message(schema, body, budget)
    entries = chain([document], document.get("inputs", ()), document.get("outputs", ()))
    for entry in entries:
        if "parameters" in entry:
            entry["parameters"] = dict(map(_named_value, entry["parameters"]))
    return document


def _named_value(entry: dict[str, Any]) -> tuple[str, Any]:
    """Return the last value, because a parameter has the last one of several."""
    return entry.get("key", ""), next(reversed(entry.get("value", {}).values()), None)


def parameter_entries(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return parameters in the form of their message."""
    return [{"key": name, "value": _typed(value)} for name, value in parameters.items()]


def _typed(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"bool_param": value}
        case int():
            return {"int64_param" if value <= _INT64_MAX else "uint64_param": value}
        case float():
            return {"double_param": value}
        case _:
            return {"string_param": value}


def encode_infer(
    schema: Schema, document: dict[str, Any], key: str, tensors: Sequence[Tensor]
) -> bytes:
    """Write `INFER_REQUEST` or `INFER_RESPONSE`; the tensors' bytes are copied once.

    Args:
        schema: one of the two schemas.
        document: fields of the message but the tensors.
        key: ``inputs`` or ``outputs``.
        tensors: tensors of the message, with binary parts.
    """
    number = next(number for number, field in schema.items() if field.name == RAW)
    document[key] = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype.name,
            "shape": tensor.shape,
            "parameters": parameter_entries(tensor.parameters),
        }
        for tensor in tensors
    ]
    buffers: list[bytes | memoryview] = [encode(schema, document)]
    for tensor in tensors:
        contents = [part.content for part in tensor.parts]
        buffers.append(length_prefix(number, sum(map(len, contents))))
        buffers += contents
    return b"".join(buffers)
