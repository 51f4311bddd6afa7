"""A played model server over gRPC: answers are its inputs, named ``y``, times two."""

import asyncio
from contextlib import asynccontextmanager

import grpc
from grpc import aio
from tritonclient.grpc import service_pb2

from tests.oip import grpc_twin
from tests.oip.grpc_twin import Answer, Request


class GrpcPlayer:
    """Handlers of the service; tests replace ``infer``.

    Attributes:
        requests: the messages received.
        metadata: that of the last request.
        cancelled: set when a client cancels a call that `hang` answers.
        started: set when `hang` begins.
    """

    def __init__(self):
        self.requests = []
        self.metadata = {}
        self.cancelled, self.started = asyncio.Event(), asyncio.Event()
        self.infer = self.double

    async def double(self, body, context):
        self.requests.append(Request.FromString(body))
        self.metadata = dict(context.invocation_metadata())
        tensors = grpc_twin.tensors_of(self.requests[-1]).values()
        outputs = [("y", datatype, array * 2) for datatype, array in tensors]
        return grpc_twin.message(Answer, outputs).SerializeToString()

    async def hang(self, _body, _context):
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def model_ready(self, body, context):
        name = service_pb2.ModelReadyRequest.FromString(body).name
        if name == "unknown":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        return service_pb2.ModelReadyResponse(ready=name == "model").SerializeToString()

    async def model_metadata(self, body, _context):
        name = service_pb2.ModelMetadataRequest.FromString(body).name
        answer = service_pb2.ModelMetadataResponse(name=name, versions=["1"], platform="played")
        answer.inputs.add(name="x", datatype="FP32", shape=[-1, -1])
        return answer.SerializeToString()

    async def _infer(self, body, context):
        return await self.infer(body, context)

    @asynccontextmanager
    async def serve(self, port=0):
        """Serve on a port of 127.0.0.1; yields its number."""
        server = aio.server(options=[("grpc.so_reuseport", 0)])
        methods = {
            "ModelInfer": self._infer,
            "ModelReady": self.model_ready,
            "ModelMetadata": self.model_metadata,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(handler) for name, handler in methods.items()
        }
        service = "inference.GRPCInferenceService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        try:
            yield port
        finally:
            await server.stop(None)
