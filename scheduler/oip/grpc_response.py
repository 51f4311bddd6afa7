"""Answers over gRPC (``ModelInfer``): those of model servers, read; those to clients, written."""

from collections.abc import Sequence
from typing import Any

from scheduler.oip.grpc_contents import part_reader
from scheduler.oip.grpc_messages import INFER_RESPONSE, decode_infer, encode_infer
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.infer_response import errors_of_server, read_outputs
from scheduler.oip.tensor import Tensor


def parse_grpc_response(body: bytes, *, rows: int) -> tuple[Tensor, ...]:
    """Read the outputs of a model server; they are views of the body.

    Args:
        body: message with the answer.
        rows: number of rows of the batch, which each output must have.

    Raises:
        MessageError: the answer is invalid, and so is it for each request of the batch.
    """
    with errors_of_server():
        document = decode_infer(INFER_RESPONSE, body)
        return read_outputs(document, part_reader(document, "outputs"), rows)


def write_grpc_response(model: str, request: InferRequest, outputs: Sequence[Tensor]) -> bytes:
    """Write the answer to a client: its own id, and all outputs as raw contents."""
    document: dict[str, Any] = {"model_name": model, "id": request.id}
    binary = [tensor.to_binary() for tensor in outputs]
    return encode_infer(INFER_RESPONSE, document, "outputs", binary)
