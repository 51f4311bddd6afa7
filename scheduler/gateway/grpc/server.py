"""The gRPC front's server."""

import socket
import ssl
from contextlib import AbstractAsyncContextManager

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.grpc.connection import GrpcConnection
from scheduler.gateway.grpc.limits import GrpcApplication, GrpcConnectionSet, GrpcLimits
from scheduler.gateway.listening import serving

ALPN = ["h2"]
"""Protocols that a TLS context offers; clients of gRPC insist on it."""


def serving_grpc(
    application: GrpcApplication,
    listener: socket.socket,
    *,
    memory: BodyMemory,
    limits: GrpcLimits,
    tls: ssl.SSLContext | None = None,
) -> AbstractAsyncContextManager[GrpcConnectionSet]:
    """Answer while inside, as `scheduler.gateway.http.server.serving_http` does.

    Args:
        application: application that answers the calls.
        listener: a socket of `scheduler.server.sockets.listen`; it is closed at the end.
        memory: bound on all messages.
        limits: limits of connections, calls and messages.
        tls: context of `scheduler.server.certificates.Certificates` with `ALPN`, or None.
    """
    connections = GrpcConnectionSet(application, memory, limits)
    return serving(connections, GrpcConnection, listener, drain_s=limits.drain_s, tls=tls)
