"""A client that sends any bytes as messages of gRPC, and reads the code of the answer."""

from random import Random

import grpc
from grpc import aio

from tests.fuzz.mutations import mutated_bytes

SERVICE = "/inference.GRPCInferenceService/"
METHODS = ("ModelInfer", "ModelReady", "ModelMetadata", "ServerLive", "ServerReady", "Nothing", "")
FAILURES = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS)
ANSWER_S = 120.0


class GrpcPort:
    """One port of gRPC, on one channel."""

    def __init__(self, port: int, request: bytes) -> None:
        self.port = port
        self._channel = aio.insecure_channel(f"127.0.0.1:{port}")
        self._request = request

    async def close(self) -> None:
        await self._channel.close()

    async def sound(self) -> bool:
        """Tell if a sound request has an answer."""
        return await self._code("ModelInfer", self._request) is grpc.StatusCode.OK

    async def mutated(self, random: Random) -> tuple[grpc.StatusCode, str]:
        """Send a mutated request; return the code of the answer, and the request."""
        message = mutated_bytes(random, self._request)
        method = random.choice((*("ModelInfer",) * 6, *METHODS))
        metadata = random.choice(
            (
                (),
                (),
                (("traceparent", "00-" + "0" * random.randint(0, 90)),),
                (("x", "y" * random.choice((1, 1_000))),),
                (("triton_grpc_error", "true"),),
                (("key-bin", bytes(random.randrange(256) for _ in range(20))),),
            )
        )
        code = await self._code(method, message, metadata)
        return code, f"{method} {metadata} {message!r}"

    async def _code(self, method: str, message: bytes, metadata=()) -> grpc.StatusCode:
        call = self._channel.unary_unary(SERVICE + method)
        try:
            await call(message, metadata=metadata, timeout=ANSWER_S)
        except aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK
