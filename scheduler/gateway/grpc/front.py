"""The gRPC front: the Open Inference Protocol's service over the backend.

A model's name is the end of its path over HTTP: ``workflow``, ``namespace/workflow``,
``workflow/stages/stage`` or ``namespace/workflow/stages/stage``.
"""

from asyncio import Task
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from scheduler import __version__
from scheduler.gateway.access import TokenAccess
from scheduler.gateway.calls import Backend, CallError, Headers, InferCall, check_version
from scheduler.gateway.grpc import reflection
from scheduler.gateway.grpc.stream import GrpcAnswer, GrpcRequest, Responder
from scheduler.model.message_text import quoted
from scheduler.oip.errors import MessageError
from scheduler.oip.grpc_messages import (
    LIVE,
    MODEL_METADATA,
    MODEL_REQUEST,
    READY,
    SERVER_METADATA,
    SERVICE,
    decode_message,
)
from scheduler.oip.grpc_request import model_of_request, parse_grpc_request
from scheduler.oip.grpc_response import write_grpc_response
from scheduler.oip.work_limits import FIELDS_MAX
from scheduler.protobuf import INT64, TEXT, Field, FieldBudget, encode

_HEALTH: Final = "grpc.health.v1.Health"
_HEALTH_REQUEST: Final = {1: Field("service", TEXT)}
_HEALTH_ANSWER: Final = {1: Field("status", INT64)}
_SERVING, _NOT_SERVING = 1, 2
_PASSED_ON: Final = (b"traceparent", b"tracestate")
_Method = Callable[[memoryview, GrpcRequest], Awaitable[GrpcAnswer]]


def _path(method: str, service: str = SERVICE) -> bytes:
    return f"/{service}/{method}".encode()


_MODEL_INFER: Final = _path("ModelInfer")


class ModelAddress(NamedTuple):
    """Workflow, and perhaps stage, that a model's name means."""

    namespace: str
    workflow: str
    stage: str | None = None


class GrpcFront:
    """Application of the gRPC server.

    Args:
        backend: backend that answers the calls.
        namespace: namespace of workflow names without one.
        access: check of the requests' tokens. Default: requests need no token.
        on_refused: callback with the status of each request that is invalid before the backend.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        namespace: str = "default",
        access: TokenAccess | None = None,
        on_refused: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._backend = backend
        self._access = access
        self._on_refused = on_refused
        self._namespace = namespace
        self._methods: dict[bytes, _Method] = {
            _path("ServerLive"): self._server_live,
            _path("ServerReady"): self._server_ready,
            _path("ServerMetadata"): self._server_metadata,
            _path("ModelReady"): self._model_ready,
            _path("ModelMetadata"): self._model_metadata,
            _MODEL_INFER: self._infer,
            _path("Check", _HEALTH): self._health,
        }
        self._responders = dict.fromkeys(
            [_path("ServerReflectionInfo", service) for service in reflection.SERVICES],
            reflection.Reflection().answer,
        )

    def now_ms(self) -> float:
        """Return the time of the backend's clock."""
        return self._backend.now_ms()

    def accept(self, request: GrpcRequest) -> "Task[None] | None":
        """Check a call before its message is read; see `GrpcApplication`."""
        if request.path not in self._methods and request.path not in self._responders:
            raise CallError(501, f"there is no method {quoted(request.path.decode('latin-1'))}")
        if self._access is None or request.path != _MODEL_INFER:
            return None
        return self._access.check_token(_authorization(request), request.source)

    def responder(self, request: GrpcRequest) -> Responder | None:
        """Return what answers each message of a call; see `GrpcApplication`."""
        return self._responders.get(request.path)

    async def answer(
        self, request: GrpcRequest, message: memoryview, review: "Task[None] | None"
    ) -> GrpcAnswer:
        """Answer a call; see `GrpcApplication`."""
        if review is not None:
            await review
        return await self._methods[request.path](message, request)

    async def _server_live(self, _body: memoryview, _request: GrpcRequest) -> GrpcAnswer:
        return GrpcAnswer(encode(LIVE, {"live": True}))

    async def _server_ready(self, _body: memoryview, _request: GrpcRequest) -> GrpcAnswer:
        return GrpcAnswer(encode(READY, {"ready": self._backend.ready()}))

    async def _health(self, body: memoryview, _request: GrpcRequest) -> GrpcAnswer:
        request = decode_message(_HEALTH_REQUEST, body, FieldBudget(FIELDS_MAX))
        service = request.get("service", "")
        if service not in {"", SERVICE, _HEALTH, *reflection.SERVICES}:
            raise CallError(404, f"there is no service {quoted(service)}; use {SERVICE}")
        status = _SERVING if self._backend.ready() else _NOT_SERVING
        return GrpcAnswer(encode(_HEALTH_ANSWER, {"status": status}))

    async def _server_metadata(self, _body: memoryview, _request: GrpcRequest) -> GrpcAnswer:
        metadata = {"name": "esg-scheduler", "version": __version__}
        return GrpcAnswer(encode(SERVER_METADATA, metadata))

    async def _model_ready(self, body: memoryview, _request: GrpcRequest) -> GrpcAnswer:
        return GrpcAnswer(encode(READY, {"ready": self._backend.ready(*self._model(body))}))

    async def _model_metadata(self, body: memoryview, _request: GrpcRequest) -> GrpcAnswer:
        metadata = await self._backend.metadata(*self._model(body))
        return GrpcAnswer(encode(MODEL_METADATA, metadata))

    def _model(self, body: memoryview) -> ModelAddress:
        request = decode_message(MODEL_REQUEST, body, FieldBudget(FIELDS_MAX))
        return self._address(request.get("name", ""), request.get("version", ""))

    def _address(self, name: str, version: str) -> ModelAddress:
        match name.split("/"):
            case [workflow]:
                address = ModelAddress(self._namespace, workflow)
            case [namespace, workflow]:
                address = ModelAddress(namespace, workflow)
            case [workflow, "stages", stage]:
                address = ModelAddress(self._namespace, workflow, stage)
            case [namespace, workflow, "stages", stage]:
                address = ModelAddress(namespace, workflow, stage)
            case _:
                address = ModelAddress("", "")
        if "" in address:
            raise CallError(
                404,
                f"there is no model {quoted(name)}; use WORKFLOW or WORKFLOW/stages/STAGE, "
                "with NAMESPACE/ in front of it or without",
            )
        if version:
            check_version(address.workflow, version)
        return address

    async def _infer(self, body: memoryview, request: GrpcRequest) -> GrpcAnswer:
        """Run a workflow; the answer's times are trailing metadata."""
        try:
            name, version = model_of_request(body)
            namespace, workflow, stage = self._address(name, version)
        except (CallError, MessageError) as error:
            self._on_refused(error.status)
            raise
        authorization = b""
        if self._access is not None:
            authorization = _authorization(request)
            review = self._access.check(authorization, namespace, workflow, request.source)
            if review is not None:
                await review
        self._backend.check(namespace, workflow, stage, len(body))
        try:
            infer_request = parse_grpc_request(body)
        except MessageError as error:
            self._on_refused(error.status)
            raise
        limits_ms = [request.timeout_ms]
        if infer_request.timeout_us is not None:
            limits_ms.append(infer_request.timeout_us / 1000)
        call = InferCall(
            namespace=namespace,
            workflow=workflow,
            stage=stage,
            request=infer_request,
            arrival_ms=request.arrival_ms,
            timeout_ms=min([limit for limit in limits_ms if limit is not None], default=None),
            headers=_passed_on(request),
            authorization=authorization,
        )
        outputs, queue_ms, execute_ms, batch, cold_start = await self._backend.submit(call)
        times = (
            ("esg-queue-ms", f"{queue_ms:.1f}"),
            ("esg-execute-ms", f"{execute_ms:.1f}"),
            ("esg-batch", str(batch)),
            ("esg-cold-start", "true" if cold_start else "false"),
        )
        return GrpcAnswer(write_grpc_response(name, infer_request, outputs), times)


def _passed_on(request: GrpcRequest) -> Headers:
    metadata = request.metadata
    return tuple([(name, metadata[name]) for name in _PASSED_ON if name in metadata])


def _authorization(request: GrpcRequest) -> bytes:
    return request.metadata.get(b"authorization", b"")
