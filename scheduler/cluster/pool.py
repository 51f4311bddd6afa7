"""The REST client of `kubernetes`, with a connection pool for a long-lived scheduler."""

import os
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from yarl import URL

# Idle connections are closed before Go's server closes them (90 s), so that few requests are
# written into a connection that the server is closing.
KEEPALIVE_S = 75.0
# A vanished peer is noticed after 15 s of silence and three unanswered probes.
PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
# Bytes read in one turn of the event loop: about thirty pods of a watch.
READ_BYTES = 65_536


class PooledRest(RESTClientObject):
    """Connections with keep-alive probes, opened with the current client certificate.

    Raises:
        OSError, ValueError: a certificate cannot be used.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._certificate = _certificate_of(configuration)
        super().__init__(configuration)

    def reload_certificate(self) -> None:
        """Load a client certificate that was renewed on disk, for new connections."""
        certificate = _certificate_of(self.configuration)
        if certificate is None or certificate == self._certificate:
            return
        self._certificate = certificate
        try:
            self.ssl_context.load_cert_chain(certificate[0], keyfile=self.configuration.key_file)
        except (OSError, ssl.SSLError):  # partly written; the next request retries
            self._certificate = None

    async def send(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the HTTP client keeps it
    ) -> aiohttp.ClientResponse:
        """Send a request; return the response once its head has arrived.

        It is the library's `request` without the forms of a body, retries and copies of headers
        that nothing here uses: they take a fifth of the time of a Binding.
        """
        if self.pool_manager is None:
            self.pool_manager = self._create_pool_manager()
        configuration = self.configuration
        return await self.pool_manager.request(
            method,
            url,
            data=body,
            headers=headers,
            timeout=timeout,
            server_hostname=configuration.tls_server_name,
            proxy=configuration.proxy,
            proxy_headers=configuration.proxy_headers,
        )

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
            trust_env=False,  # see credentials: it costs a thread per request
        )


def probed_socket(address: tuple[Any, ...]) -> socket.socket:
    """Create a socket with TCP keep-alive probes."""
    family, kind, protocol, *_ = address
    probed = socket.socket(family, kind, protocol)
    probed.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES.items():
        if hasattr(socket, option):  # Linux has all of them
            probed.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return probed


def _certificate_of(configuration: Configuration) -> tuple[str, float] | None:
    """Return the client certificate's file and its modification time; None without one."""
    path = configuration.cert_file
    try:
        return (path, os.stat(path).st_mtime) if path else None  # noqa: PTH116 - before each request
    except OSError:
        return None
