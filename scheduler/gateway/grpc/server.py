"""The gRPC front's server: it listens, reads messages when there is memory, and drains."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple, NoReturn

import grpc
import structlog
from grpc import aio

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.calls import CallError
from scheduler.gateway.grpc.status import GRPC_STATUS
from scheduler.oip.errors import MessageError
from scheduler.oip.grpc_messages import SERVICE
from scheduler.server.sockets import ListenError

log = structlog.get_logger(__name__)
Method = Callable[[bytes, aio.ServicerContext], Awaitable[bytes]]
"""Answers a message; raises `CallError` or `MessageError`."""
RETRY_PUSHBACK: Final = "grpc-retry-pushback-ms"
"""Trailing metadata with the time before another attempt; gRPC's own retries follow it."""
_DETAILS_MAX: Final = 600  # metadata has 8 KiB, and a character takes up to 12 bytes there


class GrpcEndpoint(NamedTuple):
    """Address of the server.

    Attributes:
        host: name or IP address.
        port: TCP port; 0 takes a free one.
        variables: settings of the address, for error messages.
        credentials: TLS credentials, or None for plain text.
    """

    host: str
    port: int
    variables: str
    credentials: grpc.ServerCredentials | None = None


class GrpcLimits(NamedTuple):
    """Bounds of the server.

    Attributes:
        body_bytes_max: size of the largest message.
        calls_max: number of calls at a time; another call is refused with RESOURCE_EXHAUSTED.
        drain_s: longest time for the calls in flight when the server stops.
    """

    body_bytes_max: int = 64 * 2**20
    calls_max: int = 10_000
    drain_s: float = 20.0


@contextlib.asynccontextmanager
async def serving_grpc(
    methods: Mapping[str, Method],
    endpoint: GrpcEndpoint,
    *,
    memory: BodyMemory,
    limits: GrpcLimits,
) -> AsyncIterator[int]:
    """Answer while inside; yields the port.

    Args:
        methods: methods of the service by name, as `GrpcFront.methods` returns them.
        endpoint: address of the server.
        memory: bound on all bodies.
        limits: limits of messages and calls.

    Raises:
        ListenError: the address is in use, or is not one of this machine's.
    """
    server = aio.server(
        maximum_concurrent_rpcs=limits.calls_max,
        options=[
            ("grpc.max_receive_message_length", limits.body_bytes_max),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    # Methods are declared as streams of messages: so a message is read when the handler says.
    handlers = {
        name: grpc.stream_unary_rpc_method_handler(partial(_answer, method, memory))
        for name, method in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = _listen(server, endpoint)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(limits.drain_s)


def _listen(server: aio.Server, endpoint: GrpcEndpoint) -> int:
    host, port, variables, credentials = endpoint
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            return int(server.add_insecure_port(name))
        return int(server.add_secure_port(name, credentials))
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {host} port {port} ({variables}): {error}") from None


async def _answer(
    method: Method, memory: BodyMemory, _messages: object, context: aio.ServicerContext
) -> bytes:
    held_bytes = 0
    try:
        body = await _read(memory, context)
        memory.reserve(len(body))
        held_bytes = len(body)
        return await method(body, context)
    except (CallError, MessageError) as error:
        return await _abort(
            context, error.status, str(error), getattr(error, "retry_after_s", None)
        )
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # by the client
            raise
        return await _abort(context, 503, "the gateway stops; send the request again", 1.0)
    except Exception as error:
        log.error("a call ended with an error of the gateway", exc_info=error)
        return await _abort(context, 500, "an error of the gateway; its log has the cause")
    finally:
        memory.release(held_bytes)


async def _read(memory: BodyMemory, context: aio.ServicerContext) -> bytes:
    while memory.is_scarce:
        is_plentiful = asyncio.Event()
        memory.when_plentiful(is_plentiful.set)
        await is_plentiful.wait()
    body: Any = await context.read()
    if not isinstance(body, bytes):
        raise MessageError("the call has no message; send one")
    return body


async def _abort(
    context: aio.ServicerContext, status: int, text: str, retry_after_s: float | None = None
) -> NoReturn:
    metadata: tuple[tuple[str, str], ...] = ()
    if retry_after_s is not None:
        metadata = ((RETRY_PUSHBACK, str(ceil(1000 * retry_after_s))),)
    code = GRPC_STATUS.get(status, grpc.StatusCode.INTERNAL)
    await context.abort(code, text[:_DETAILS_MAX], metadata)
    raise AssertionError("abort raises")
