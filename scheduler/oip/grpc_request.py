"""Requests over gRPC (``ModelInfer``): those of clients, read; those to model servers, written."""

from collections.abc import Sequence
from typing import Any

from scheduler.oip.batch import RowRange, joined_inputs, server_parameters
from scheduler.oip.grpc_contents import part_reader
from scheduler.oip.grpc_messages import (
    INFER_REQUEST,
    MODEL_OF_REQUEST,
    decode_infer,
    decode_message,
    encode_infer,
    parameter_entries,
)
from scheduler.oip.infer_request import InferRequest, read_request
from scheduler.oip.work_limits import FIELDS_MAX
from scheduler.protobuf import FieldBudget


def model_of_request(body: bytes | memoryview) -> tuple[str, str]:
    """Return name and version of the model that a request names, without reading its tensors.

    Raises:
        MessageError: the body is no message, or has too many fields.
    """
    document = decode_message(MODEL_OF_REQUEST, body, FieldBudget(FIELDS_MAX))
    return document.get("model_name", ""), document.get("model_version", "")


def parse_grpc_request(body: bytes | memoryview) -> InferRequest:
    """Read a request; its tensors are views of the body, or typed contents as bytes.

    Raises:
        MessageError: the request is invalid.
    """
    budget = FieldBudget(FIELDS_MAX)
    document = decode_infer(INFER_REQUEST, body, budget)
    request = read_request(document, part_reader(document, "inputs", budget))
    return request._replace(binary_output=True)


def join_grpc(ranges: Sequence[RowRange], model: str, *, timeout_us: int | None = None) -> bytes:
    """Write one request to a model server for ranges of joinable requests.

    Args:
        ranges: one range or more; their requests have passed `InferRequest.in_form`, binary.
        model: name of the model at the server.
        timeout_us: time that the model server has, in microseconds; None: no limit.
    """
    request = ranges[0].request
    document: dict[str, Any] = {
        "model_name": model,
        "parameters": parameter_entries(server_parameters(request, timeout_us)),
        "outputs": [
            {"name": name, "parameters": parameter_entries(own)} for name, _, own in request.outputs
        ],
    }
    return encode_infer(INFER_REQUEST, document, "inputs", joined_inputs(ranges))
