"""The gRPC front: the Open Inference Protocol's service over the backend.

A model's name is the end of its path over HTTP: ``workflow``, ``namespace/workflow``,
``workflow/stages/stage`` or ``namespace/workflow/stages/stage``.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from grpc.aio import ServicerContext

from scheduler import __version__
from scheduler.gateway.access import TokenAccess
from scheduler.gateway.calls import Backend, CallError, InferCall
from scheduler.gateway.grpc.server import Method
from scheduler.model.message_text import quoted
from scheduler.oip.grpc_messages import (
    LIVE,
    MODEL_METADATA,
    MODEL_REQUEST,
    READY,
    SERVER_METADATA,
    decode_message,
)
from scheduler.oip.grpc_request import model_of_request, parse_grpc_request
from scheduler.oip.grpc_response import write_grpc_response
from scheduler.protobuf import encode

_PASSED_ON: Final = frozenset({"traceparent", "tracestate"})


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
    """

    def __init__(
        self,
        backend: Backend,
        *,
        namespace: str = "default",
        access: TokenAccess | None = None,
    ) -> None:
        self._backend = backend
        self._access = access
        self._namespace = namespace

    def methods(self) -> Mapping[str, Method]:
        """Return the methods of the service by name."""
        return {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
        }

    async def _server_live(self, _body: bytes, _context: ServicerContext) -> bytes:
        return encode(LIVE, {"live": True})

    async def _server_ready(self, _body: bytes, _context: ServicerContext) -> bytes:
        return encode(READY, {"ready": self._backend.ready()})

    async def _server_metadata(self, _body: bytes, _context: ServicerContext) -> bytes:
        return encode(SERVER_METADATA, {"name": "esg-scheduler", "version": __version__})

    async def _model_ready(self, body: bytes, _context: ServicerContext) -> bytes:
        return encode(READY, {"ready": self._backend.ready(*self._model(body))})

    async def _model_metadata(self, body: bytes, _context: ServicerContext) -> bytes:
        return encode(MODEL_METADATA, await self._backend.metadata(*self._model(body)))

    def _model(self, body: bytes) -> ModelAddress:
        request = decode_message(MODEL_REQUEST, body)
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
            raise CallError(
                404,
                f"workflow {quoted(address.workflow)} has no versions; "
                "call it without a model version",
            )
        return address

    async def _infer(self, body: bytes, context: ServicerContext) -> bytes:
        """Run a workflow; the answer's times are trailing metadata."""
        arrival_ms = self._backend.now_ms()
        name, version = model_of_request(body)
        namespace, workflow, stage = self._address(name, version)
        metadata = context.invocation_metadata() or ()
        access, authorization = self._access, b""
        if access is not None:
            authorization = _authorization(metadata)
            review = access.check(authorization, namespace, workflow, "")
            if review is not None:
                await review
        self._backend.check(namespace, workflow, stage, len(body))
        request = parse_grpc_request(body)
        limits_ms = []
        if request.timeout_us is not None:
            limits_ms.append(request.timeout_us / 1000)
        remaining_s = context.time_remaining()
        if remaining_s is not None:
            limits_ms.append(remaining_s * 1000)
        call = InferCall(
            namespace=namespace,
            workflow=workflow,
            stage=stage,
            request=request,
            arrival_ms=arrival_ms,
            timeout_ms=min(limits_ms, default=None),
            headers=_passed_on(metadata),
            authorization=authorization,
        )
        outputs, queue_ms, execute_ms, batch, cold_start = await self._backend.submit(call)
        context.set_trailing_metadata(
            (
                ("esg-queue-ms", f"{queue_ms:.1f}"),
                ("esg-execute-ms", f"{execute_ms:.1f}"),
                ("esg-batch", str(batch)),
                ("esg-cold-start", "true" if cold_start else "false"),
            )
        )
        return write_grpc_response(name, request, outputs)


def _passed_on(metadata: Any) -> tuple[tuple[bytes, bytes], ...]:
    return tuple([(key.encode(), value.encode()) for key, value in metadata if key in _PASSED_ON])


def _authorization(metadata: Any) -> bytes:
    values = (value for key, value in metadata if key == "authorization")
    return str(next(values, "")).encode()
