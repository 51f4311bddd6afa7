"""The HTTP front's server."""

import socket
import ssl
from contextlib import AbstractAsyncContextManager

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http.connection import HttpConnection
from scheduler.gateway.http.limits import ConnectionSet, HttpLimits
from scheduler.gateway.http.messages import Application
from scheduler.gateway.listening import serving


def serving_http(
    application: Application,
    listener: socket.socket,
    *,
    memory: BodyMemory,
    limits: HttpLimits,
    tls: ssl.SSLContext | None = None,
) -> AbstractAsyncContextManager[ConnectionSet]:
    """Answer while inside; at the end, answer the calls in flight and close all connections.

    Args:
        application: application that answers requests.
        listener: a socket of `scheduler.server.sockets.listen`; it is closed at the end.
        memory: bound on all bodies.
        limits: limits of connections and requests.
        tls: TLS context of `scheduler.server.certificates.Certificates`, or None for plain HTTP.
    """
    connections = ConnectionSet(application, memory, limits)
    return serving(connections, HttpConnection, listener, drain_s=limits.drain_s, tls=tls)
