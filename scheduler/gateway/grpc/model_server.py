"""Client of a model server by gRPC, with tensors as raw contents.

Messages pass through grpcio as bytes; `scheduler.oip` reads and writes them.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from grpc import ChannelConnectivity, StatusCode, aio

from scheduler.gateway.calls import Headers
from scheduler.gateway.model_server import ModelServerError
from scheduler.oip.batch import RowRange
from scheduler.oip.errors import MessageError
from scheduler.oip.grpc_messages import (
    MODEL_METADATA,
    MODEL_REQUEST,
    READY,
    SERVICE,
    decode_message,
)
from scheduler.oip.grpc_request import join_grpc
from scheduler.oip.grpc_response import parse_grpc_response
from scheduler.oip.tensor import Tensor
from scheduler.protobuf import Schema, encode

_HTTP_STATUS: Final = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.ABORTED: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}
"""Status of a model server's error; 500 for all others."""
_WITHOUT_CONNECTION: Final = frozenset(
    {ChannelConnectivity.CONNECTING, ChannelConnectivity.TRANSIENT_FAILURE}
)
_LOOK_UP_S = 5.0  # for an answer without inference
_ERROR_TEXT_MAX = 2000


class GrpcModelServer:
    """Client of one pod; all requests share a connection, which is made again when it breaks.

    Args:
        host: address of the pod.
        port: port of the model server in that pod.
        connect_s: longest time to connect.
        answer_bytes_max: size of the largest answer.
    """

    binary = True

    def __init__(
        self, host: str, port: int, *, connect_s: float = 3.0, answer_bytes_max: int = 2**30
    ) -> None:
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._channel = aio.insecure_channel(
            self._name,
            options=[
                ("grpc.max_receive_message_length", answer_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),  # no connection shared with another client
                ("grpc.enable_http_proxy", 0),
                # A pod whose container restarts keeps its address.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.min_reconnect_backoff_ms", int(1000 * connect_s)),  # the time to connect
            ],
        )
        self._infer, self._ready, self._metadata = (
            self._channel.unary_unary(f"/{SERVICE}/{method}")
            for method in ("ModelInfer", "ModelReady", "ModelMetadata")
        )

    async def infer(
        self,
        model: str,
        ranges: Sequence[RowRange],
        *,
        timeout_ms: float | None,
        headers: Headers = (),
    ) -> tuple[Tensor, ...]:
        """Send joinable rows as one batch; see `ModelServer.infer`."""
        timeout_us = None if timeout_ms is None else max(1, int(timeout_ms * 1000))
        message = join_grpc(ranges, model, timeout_us=timeout_us)
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        answer = await self._call(self._infer, message, timeout_s, _metadata(headers))
        rows = sum(item.rows for item in ranges)
        try:
            return parse_grpc_response(answer, rows=rows)
        except MessageError as error:
            raise ModelServerError(error.status, f"{self._name}: {error}") from None

    async def ready(self, model: str) -> bool:
        """Return true if the server says that the model is ready; false without an answer."""
        try:
            answer = await self._look_up(self._ready, model, READY)
        except ModelServerError:
            return False
        return bool(answer.get("ready"))

    async def metadata(self, model: str) -> dict[str, Any]:
        """Return the protocol's metadata object of the model.

        Raises:
            ModelServerError: there is no valid answer.
        """
        return await self._look_up(self._metadata, model, MODEL_METADATA)

    def close_idle(self) -> None:
        """Do nothing: a server that stops ends idle connections of gRPC itself."""

    async def close(self) -> None:
        """Close the connection; calls in flight end with an error."""
        await self._channel.close()

    async def _look_up(self, method: Any, model: str, schema: Schema) -> dict[str, Any]:
        body = await self._call(method, encode(MODEL_REQUEST, {"name": model}), _LOOK_UP_S)
        try:
            return decode_message(schema, body)
        except MessageError as error:
            raise ModelServerError(502, f"an answer of {self._name}: {error}") from None

    async def _call(
        self,
        method: Any,
        message: bytes,
        timeout_s: float | None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        try:
            answer: bytes = await method(message, timeout=timeout_s, metadata=metadata)
        except aio.AioRpcError as error:
            raise self._error(error, timeout_s) from None
        except (asyncio.CancelledError, aio.UsageError):
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            message_text = f"the connection to {self._name} was closed by the gateway"
            raise ModelServerError(503, message_text, retryable=True) from None
        return answer

    def _error(self, error: aio.AioRpcError, timeout_s: float | None) -> ModelServerError:
        code = error.code()
        if code is StatusCode.DEADLINE_EXCEEDED and timeout_s is not None:
            text = f"{self._name} has not answered within {1000 * timeout_s:,.0f} ms"
            return ModelServerError(504, text)
        reason = (error.details() or "")[:_ERROR_TEXT_MAX]
        text = f"{self._name} answered {code.name}: {reason}"
        if code is StatusCode.RESOURCE_EXHAUSTED and "larger than max" in reason:
            hint = "let both ends take messages of the size of a whole batch"
            return ModelServerError(502, f"{text}; {hint}")
        status = _HTTP_STATUS.get(code, 500)
        if code is StatusCode.UNAVAILABLE:
            state = self._channel.get_state()
            return ModelServerError(
                status, text, retryable=True, is_unreachable=state in _WITHOUT_CONNECTION
            )
        return ModelServerError(status, text)


def _metadata(headers: Headers) -> list[tuple[str, str]]:
    """Return headers as metadata, without those that gRPC cannot carry."""
    texts = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return [(name, value) for name, value in texts if value.isascii() and value.isprintable()]
