"""The first batch of a new pod: zeros of the shape in the model's metadata.

Frameworks load kernels and allocate memory at their first batch, which takes many times its normal
time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import prod
from typing import Any

import structlog

from scheduler.cluster.backoff import Backoff
from scheduler.gateway.model_server import ModelServer, ModelServerError
from scheduler.model.message_text import quoted
from scheduler.oip.batch import RowRange
from scheduler.oip.datatypes import BYTES, DATATYPES
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.tensor import Tensor, TensorPart

log = structlog.get_logger(__name__)
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 0.2  # a request may wait for this pod
BATCH_TIMEOUT_MS = 300_000.0  # a first batch may compile the model
BYTES_MAX = 256 * 2**20

Sleep = Callable[[float], Awaitable[Any]]


class NoZerosError(ValueError):
    """The metadata does not say what a batch looks like; the text states why."""


async def warm_up(
    server: ModelServer, model: str, rows: int, *, pod: str, sleep: Sleep = asyncio.sleep
) -> None:
    """Wait until the model is ready, and run one batch of zeros.

    A model that cannot run zeros gets none, or refuses them; the log says so, and the pod then
    serves without a warm-up. It waits until it is cancelled: the caller limits a pod's start.

    Args:
        server: model server of the pod.
        model: name of the model at the server.
        rows: number of rows of the batch.
        pod: name of the pod, for the log.
        sleep: waits for a number of seconds.
    """
    backoff = Backoff(start_s=FIRST_PAUSE_S, cap_s=LAST_PAUSE_S)
    while True:
        while not await server.ready(model):
            await sleep(backoff.next_s())
        try:
            request = zeros(await server.metadata(model), rows).in_form(binary=server.binary)
            whole = RowRange(request, 0, request.rows)
            await server.infer(model, [whole], timeout_ms=BATCH_TIMEOUT_MS)
        except ModelServerError as error:
            if error.retryable:
                await sleep(backoff.next_s())
                continue
            log.warning("warm-up batch refused", pod=pod, model=model, error=str(error))
        except (NoZerosError, MessageError) as error:
            log.warning("no warm-up batch", pod=pod, model=model, reason=str(error))
        return


def zeros(metadata: dict[str, Any], rows: int) -> InferRequest:
    """Return a request with zeros for each input of the metadata.

    Args:
        metadata: metadata object of a model, as the protocol has it.
        rows: first dimension, where the metadata leaves it open.

    Raises:
        NoZerosError: a datatype has no zero, or a shape is open.
    """
    inputs = metadata.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise NoZerosError("the model's metadata has no inputs")
    tensors = tuple(_zero_tensor(entry, rows) for entry in inputs)
    if len({tensor.rows for tensor in tensors}) > 1:
        raise NoZerosError("the inputs in the model's metadata differ in their first dimension")
    return InferRequest(None, tensors, (), {}, True, None, None)


def _zero_tensor(entry: Any, rows: int) -> Tensor:
    try:
        name, datatype, shape = entry["name"], DATATYPES.get(entry["datatype"]), entry["shape"]
        sizes = [int(size) for size in shape]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise NoZerosError("an input in the model's metadata has no name or shape") from None
    if datatype is None or datatype is BYTES:
        raise NoZerosError(f"input {quoted(name)} is of datatype {quoted(entry['datatype'])}")
    if not sizes or min(sizes[1:], default=1) < 1 or sizes[0] == 0:
        raise NoZerosError(f"input {quoted(name)} has the open shape {sizes}")
    sizes[0] = rows if sizes[0] < 0 else sizes[0]
    row_bytes = prod(sizes[1:]) * datatype.size_bytes
    if sizes[0] * row_bytes > BYTES_MAX:
        raise NoZerosError(f"input {quoted(name)} of shape {sizes} exceeds {BYTES_MAX:,} bytes")
    part = TensorPart(sizes[0], memoryview(bytes(sizes[0] * row_bytes)), row_bytes)
    return Tensor(name, datatype, tuple(sizes), (part,), {})
