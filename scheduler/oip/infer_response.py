"""Answers: those of model servers, read; those to clients, written."""

from collections.abc import Sequence
from typing import Any

from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.message import Message, decode, encode, entries
from scheduler.oip.tensor import Tensor
from scheduler.oip.tensor_reader import read_tensor
from scheduler.oip.tensor_writer import write_tensor


def parse_response(
    body: bytes | memoryview, header_length: str | None, *, rows: int
) -> tuple[Tensor, ...]:
    """Read the outputs of a model server; they are views of the body.

    Args:
        body: the complete body.
        header_length: value of the HTTP header ``Inference-Header-Content-Length``, if there is.
        rows: the rows of the batch, which each output must have.

    Raises:
        MessageError: the answer is invalid, and so is it for each request of the batch.
    """
    try:
        return _outputs(body, header_length, rows)
    except MessageError as error:
        raise MessageError(f"the model server's answer is invalid: {error}", 502) from None


def _outputs(body: bytes | memoryview, header_length: str | None, rows: int) -> tuple[Tensor, ...]:
    document, binary = decode(body, header_length)
    outputs = [
        read_tensor(entry, "output", binary, rows=rows, minimum=0)
        for entry in entries(document, "outputs")
    ]
    if not outputs:
        raise MessageError("it has no outputs; send at least one")
    binary.check_end()
    return tuple(outputs)


def write_response(model: str, request: InferRequest, outputs: Sequence[Tensor]) -> Message:
    """Write the answer to a client: its own id, and each output in the form it requests.

    Raises:
        MessageError: the client requests JSON, which cannot carry a datatype or a value.
    """
    forms = {output.name: output.binary for output in request.outputs}
    document: dict[str, Any] = {"model_name": model}
    if request.id is not None:
        document["id"] = request.id
    buffers: list[memoryview] = []
    written, binary = [], False
    for tensor in outputs:
        requested = forms.get(tensor.name)
        in_binary = request.binary_output if requested is None else requested
        binary |= in_binary
        written.append(write_tensor(tensor, buffers, binary=in_binary))
    document["outputs"] = written
    return encode(document, buffers, binary=binary)
