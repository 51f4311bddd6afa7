"""The HTTP front: the Open Inference Protocol's operations over the backend."""

import asyncio
import time
from asyncio import Future
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any, NamedTuple

import structlog

from scheduler import __version__
from scheduler.gateway.access import TokenAccess, submit_after
from scheduler.gateway.calls import Backend, CallError, Headers, InferAnswer, InferCall
from scheduler.gateway.http.messages import (
    JSON,
    HttpAnswer,
    HttpRequest,
    call_error_answer,
    error_answer,
    header_ms,
    json_answer,
)
from scheduler.gateway.http.openapi import openapi_document
from scheduler.gateway.http.routes import Action, Route, find_route
from scheduler.model.message_text import quoted
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest, parse_request
from scheduler.oip.infer_response import all_binary, write_response
from scheduler.oip.message import HEADER_LENGTH

log = structlog.get_logger(__name__)
Respond = Callable[[HttpRequest, HttpAnswer], None]
DEADLINE = "Esg-Deadline-Ms"
"""HTTP header with the time that the client still has."""
ARRIVAL = "Esg-Arrival-Ms"
"""HTTP header with the Unix time at which the request came to a proxy in front of the gateway.

It is ignored unless the gateway's setting trusts it: an older request is served before others.
"""
FORWARDED = "Esg-Forwarded-Ms"
"""HTTP header of a request from another replica: the time since its arrival there.

The time counts only from the address of a replica.
"""
_DEADLINE, _ARRIVAL, _FORWARDED, _HEADER_LENGTH = (
    name.lower().encode() for name in (DEADLINE, ARRIVAL, FORWARDED, HEADER_LENGTH)
)
_LONG_JSON_BYTES = 16 * 1024
_LONG_JSON_VALUES = 16 * 1024
_BYTES_OF_VALUE = 4  # of JSON, at least, unless there are fewer values than the limit
# One thread, so that long JSON takes no more than its share of the interpreter's time. A client
# that sends a lot of it delays other long JSON, and nothing else.
_WORKER = ThreadPoolExecutor(1, thread_name_prefix="long-json")
_DIGITS_MAX = 20  # of a length; longer ones are invalid anyway
_AUTHORIZATION = b"authorization"
_PASSED_ON = (b"traceparent", b"tracestate")
_TIME_LINES = (
    b"Esg-Queue-Ms: %.1f\r\nEsg-Execute-Ms: %.1f\r\nEsg-Batch: %d\r\nEsg-Cold-Start: %b\r\n"
)
_JSON_LINES = JSON + _TIME_LINES
_BINARY_LINES = b"Content-Type: application/octet-stream\r\n%b: %%d\r\n%b" % (
    HEADER_LENGTH.encode(),
    _TIME_LINES,
)
_SERVER_METADATA = json_answer(
    {"name": "esg-scheduler", "version": __version__, "extensions": ["binary_tensor_data"]}
)
_OPENAPI = json_answer(openapi_document())
_NOT_READY = json_answer({"ready": False}, 503, b"Retry-After: 1\r\n")


class RequestRules(NamedTuple):
    """Rules for the requests of clients.

    Attributes:
        json_bytes_max: size of the largest JSON part of a body; it has a quarter as many values at
            most.
        trust_arrival: true to believe the arrival times that clients send.
    """

    json_bytes_max: int = 2**20
    trust_arrival: bool = False


class ForwardedCalls(NamedTuple):
    """Requests that other replicas forward.

    Attributes:
        backend: backend that answers forwarded calls.
        is_peer: returns true for the IP address of another replica.
    """

    backend: Backend
    is_peer: Callable[[str], bool]


class _Head(NamedTuple):
    """Checked head of a request; requests with the same bytes in their heads share it.

    Attributes:
        backend: backend that answers the request.
        route: route of the request's path.
        namespace: namespace of the workflow.
        header_length: length of the JSON in the body, as sent; None: the whole body.
        json_bytes: `header_length` as a number; 0 without one.
        arrived_unix_ms: arrival of the request at a proxy, or None.
        age_ms: time since the request's arrival at another replica.
        limit_ms: time that the client allows from the end of the head on, or None.
        passed_on: headers for model servers.
        authorization: token of the client.
    """

    backend: Backend
    route: Route
    namespace: str
    header_length: str | None
    json_bytes: int
    arrived_unix_ms: float | None
    age_ms: float
    limit_ms: float | None
    passed_on: Headers
    authorization: bytes


class HttpFront:
    """Application of the HTTP server.

    Args:
        backend: backend that answers the calls.
        namespace: namespace of paths without one.
        rules: rules for requests.
        forwarded: calls that other replicas forward. Default: there are no other replicas.
        access: check of the requests' tokens. Default: requests need no token.
        on_refused: callback with the status of each request that is invalid before the backend.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        backend: Backend,
        *,
        namespace: str = "default",
        rules: RequestRules = RequestRules(),  # noqa: B008 - immutable
        forwarded: ForwardedCalls | None = None,
        access: TokenAccess | None = None,
        on_refused: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._backend = backend
        self._forwarded = forwarded
        self._access = access
        self._on_refused = on_refused
        self._namespace = namespace
        self._rules = rules
        self._values_max = rules.json_bytes_max // _BYTES_OF_VALUE
        self.now_ms = backend.now_ms

    def accept(self, request: HttpRequest) -> None:
        """Check a request before its body is read.

        Raises:
            CallError: the request is refused.
        """
        head: _Head | None = request.context
        if head is None:
            try:
                head = request.context = self._read_head(request)
            except CallError as error:
                self._on_refused(error.status)
                raise
        route = head.route
        if route.action is Action.INFER:
            if self._access is not None:
                request.review = self._access.check(
                    head.authorization, head.namespace, route.workflow, request.source
                )
            size_bytes = request.content_length or 0
            head.backend.check(head.namespace, route.workflow, route.stage, size_bytes)

    def start(
        self, request: HttpRequest, body: bytes | memoryview, respond: Respond
    ) -> "Future[Any] | None":
        """Answer a complete request, now or later; return a call in flight."""
        action = request.context.route.action
        try:
            if action is Action.INFER:
                return self._infer(request, body, respond)
            if action is Action.MODEL_METADATA:
                return self._model_metadata(request, respond)
            respond(request, self._status(request.context))
        except (CallError, MessageError) as error:
            if action is Action.INFER:
                self._on_refused(error.status)
            respond(request, _failure(error))
        return None

    def _read_head(self, request: HttpRequest) -> _Head:
        route = find_route(request.target)
        headers = request.headers
        if request.method not in route.methods:
            method = quoted(request.method.decode("latin-1"))
            allowed = b" or ".join(route.methods).decode()
            raise CallError(405, f"the method is {method}; use {allowed}")
        backend, arrived_unix_ms, age_ms, limit_ms = self._backend, None, None, None
        forwarded = self._forwarded if _FORWARDED in headers else None
        if route.action is Action.INFER:
            limit_ms = header_ms(headers, _DEADLINE)
            if forwarded is not None:
                if forwarded.is_peer(request.source):
                    age_ms = header_ms(headers, _FORWARDED)
            elif self._rules.trust_arrival:
                arrived_unix_ms = header_ms(headers, _ARRIVAL)
            self._check_form(headers, request.content_length)
        if forwarded is not None:
            backend = forwarded.backend
        length = headers.get(_HEADER_LENGTH)
        text = None if length is None else length.decode("latin-1")
        is_number = text is not None and text.isdecimal() and len(text) < _DIGITS_MAX
        return _Head(
            backend,
            route,
            route.namespace or self._namespace,
            text,
            int(text) if text is not None and is_number else 0,
            arrived_unix_ms,
            age_ms or 0.0,
            limit_ms,
            tuple([(name, headers[name]) for name in _PASSED_ON if name in headers]),
            headers.get(_AUTHORIZATION, b""),
        )

    def _check_form(self, headers: dict[bytes, bytes], length: int | None) -> None:
        encoding = headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            name = quoted(encoding.decode("latin-1"))
            raise CallError(415, f"Content-Encoding is {name}; send the body without compression")
        if length is not None and _HEADER_LENGTH not in headers:
            self._check_json(length)

    def _check_json(self, size_bytes: int) -> None:
        limit_bytes = self._rules.json_bytes_max
        if size_bytes > limit_bytes:
            raise CallError(
                413,
                f"the body has {size_bytes:,} bytes of JSON, and the limit is {limit_bytes:,}; "
                "send tensors as binary data",
            )

    def _infer(
        self, request: HttpRequest, body: bytes | memoryview, respond: Respond
    ) -> "Future[Any]":
        head: _Head = request.context
        whole = head.header_length is None
        json_bytes = len(body) if whole else min(head.json_bytes, len(body))
        self._check_json(json_bytes)
        if json_bytes > _LONG_JSON_BYTES:
            return asyncio.ensure_future(self._infer_long_json(request, body, respond))
        infer_request = parse_request(body, head.header_length, self._values_max)
        future = self._call(request, infer_request)
        model = head.route.stage or head.route.workflow

        def answered(future: "Future[InferAnswer]") -> None:
            if _has_long_json(infer_request, future):
                writing = _WORKER.submit(_infer_answer, model, infer_request, future)
                asyncio.wrap_future(writing).add_done_callback(
                    lambda written: respond(request, written.result())
                )
            else:
                respond(request, _infer_answer(model, infer_request, future))

        future.add_done_callback(answered)
        return future

    async def _infer_long_json(
        self, request: HttpRequest, body: bytes | memoryview, respond: Respond
    ) -> None:
        """Read and write a message in the worker's thread."""
        head: _Head = request.context
        model = head.route.stage or head.route.workflow
        loop = asyncio.get_running_loop()
        try:
            try:
                infer_request = await loop.run_in_executor(
                    _WORKER, parse_request, body, head.header_length, self._values_max
                )
            except MessageError as error:
                self._on_refused(error.status)
                raise
            future = self._call(request, infer_request)
            try:
                await asyncio.wait((future,))
            finally:
                future.cancel()  # the client may have hung up
            answer = await loop.run_in_executor(
                _WORKER, _infer_answer, model, infer_request, future
            )
        except Exception as error:  # noqa: BLE001 - it is answered, or logged
            answer = _failure(error)
        respond(request, answer)

    def _call(self, request: HttpRequest, infer_request: InferRequest) -> "Future[InferAnswer]":
        head: _Head = request.context
        backend, route, limit_ms = head.backend, head.route, head.limit_ms
        if infer_request.timeout_us is not None:
            timeout_ms = infer_request.timeout_us / 1000
            limit_ms = timeout_ms if limit_ms is None else min(limit_ms, timeout_ms)
        age_ms = head.age_ms
        if head.arrived_unix_ms is not None:
            here_ms = backend.now_ms() - request.arrival_ms
            age_ms = max(0.0, time.time() * 1000 - here_ms - head.arrived_unix_ms)
        call = InferCall(
            head.namespace,
            route.workflow,
            route.stage,
            infer_request,
            request.arrival_ms - age_ms,
            None if limit_ms is None else limit_ms + age_ms,
            head.passed_on,
            head.authorization,
        )
        review = request.review
        if review is None:
            return backend.submit(call)
        return asyncio.ensure_future(submit_after(review, backend, call))

    def _model_metadata(self, request: HttpRequest, respond: Respond) -> "Future[Any]":
        head: _Head = request.context
        route = head.route
        metadata = head.backend.metadata(head.namespace, route.workflow, route.stage)

        def answered(future: "Future[dict[str, Any]]") -> None:
            error = _error(future)
            respond(request, _failure(error) if error else json_answer(future.result()))

        task = asyncio.ensure_future(metadata)
        task.add_done_callback(answered)
        return task

    def _status(self, head: _Head) -> HttpAnswer:
        backend, route = head.backend, head.route
        if route.action is Action.SERVER_METADATA:
            return _SERVER_METADATA
        if route.action is Action.OPENAPI:
            return _OPENAPI
        if route.action is Action.LIVE:
            return json_answer({"live": True})
        if route.action is Action.READY:
            ready = backend.ready()
        else:
            ready = backend.ready(head.namespace, route.workflow, route.stage)
        return json_answer({"ready": True}) if ready else _NOT_READY


def _has_long_json(request: InferRequest, future: "Future[InferAnswer]") -> bool:
    """Return true if the answer has many values that are written as JSON."""
    if all_binary(request) or _error(future) is not None:
        return False
    outputs = future.result().outputs
    return sum([prod(tensor.shape) for tensor in outputs]) > _LONG_JSON_VALUES


def _infer_answer(model: str, request: InferRequest, future: "Future[InferAnswer]") -> HttpAnswer:
    error = _error(future)
    if error is not None:
        return _failure(error)
    outputs, queue_ms, execute_ms, batch, cold_start = future.result()
    try:
        message = write_response(model, request, outputs)
    except MessageError as unwritable:
        return _failure(unwritable)
    times = (queue_ms, execute_ms, batch, b"true" if cold_start else b"false")
    if message.header_length is None:
        lines = _JSON_LINES % times
    else:
        lines = _BINARY_LINES % (message.header_length, *times)
    return HttpAnswer(200, lines, [message.header, *message.buffers])


def _error(future: "Future[Any]") -> BaseException | None:
    if future.cancelled():
        return CallError(503, "the gateway stops; send the request again", 1.0)
    return future.exception()


def _failure(error: BaseException) -> HttpAnswer:
    if isinstance(error, CallError):
        return call_error_answer(error)
    if isinstance(error, MessageError):
        return error_answer(error.status, str(error))
    log.error("a call ended with an error of the gateway", exc_info=error)
    return error_answer(500, "an error of the gateway; its log has the cause")
