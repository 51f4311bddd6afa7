"""The REST client of `kubernetes`, over a connection pool that suits a long-lived scheduler."""

import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

# An idle connection is kept shorter than Go's server keeps it (90 s), so that a request is seldom
# written into a connection that the server is just closing.
KEEPALIVE_S = 75.0
# A peer that vanished without a word is noticed after 15 s of silence and three unanswered probes.
PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
# What is taken up in one turn of the event loop: some thirty pods of a watch.
READ_BYTES = 65_536


class PooledRest(RESTClientObject):
    """Connections that are probed, kept, and made with the client certificate of the day.

    Raises:
        OSError, ValueError: a certificate cannot be used.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._certificate = _certificate_of(configuration)
        super().__init__(configuration)

    def take_up_certificate(self) -> None:
        """Show a client certificate that was renewed on disk, on connections made from now on."""
        certificate = _certificate_of(self.configuration)
        if certificate is None or certificate == self._certificate:
            return
        self._certificate = certificate
        try:
            self.ssl_context.load_cert_chain(certificate[0], keyfile=self.configuration.key_file)
        except (OSError, ssl.SSLError):  # half written; the next request looks again
            self._certificate = None

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize,
            ssl=self.ssl_context,
            keepalive_timeout=KEEPALIVE_S,
            socket_factory=probed_socket,
        )

    def _create_pool_manager(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._create_connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BYTES,
            trust_env=False,  # see credentials: it costs a thread at each request
        )


def probed_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose peer the kernel asks now and then whether it is still there."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES.items():
        if hasattr(socket, option):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _certificate_of(configuration: Configuration) -> tuple[str, float] | None:
    """The client certificate's file and when it was written; None where there is none."""
    path = configuration.cert_file
    try:
        return (path, Path(path).stat().st_mtime) if path else None
    except OSError:
        return None
