"""Clients of model servers by the protocol that a server speaks."""

from scheduler.gateway.http.model_server import HttpModelServer
from scheduler.gateway.model_server import ModelServer
from scheduler.model.function_server import ServerProtocol


def model_server(protocol: ServerProtocol, host: str, port: int) -> ModelServer:
    """Return a client of the model server at an address; it connects when it is used."""
    match protocol:
        case "http-binary" | "http-json":
            return HttpModelServer(host, port, binary=protocol == "http-binary")
        case "grpc":
            from scheduler.gateway.grpc.model_server import (  # noqa: PLC0415 - loads 10 MB
                GrpcModelServer,
            )

            return GrpcModelServer(host, port)
