"""The connection to the API server: JSON in, JSON out.

No models: the generated ones of `kubernetes` validate each field of each object, and turning raw
JSON into them was more than half of the CPU of a service that did it (kubespawner's). The
connection itself is theirs: configuration, authentication, certificates and the REST client.
"""

import json
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeAlias
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from scheduler.cluster.credentials import Credentials, load_credentials
from scheduler.cluster.errors import (
    ApiError,
    ApiTimeoutError,
    ApiUnreachableError,
    ClusterConfigError,
    ClusterError,
)

Raw: TypeAlias = dict[str, Any]
"""A Kubernetes object as its JSON."""

USER_AGENT = "esg-scheduler"
MERGE_PATCH = "application/merge-patch+json"

# An idle connection is kept shorter than Go's server keeps it (90 s), so that a request is seldom
# written into a connection that the server is just closing.
KEEPALIVE_S = 75.0
# A peer that vanished without a word is noticed after 15 s of silence and three unanswered probes.
PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
# Lines of a watch are put together here, so this bounds only what is taken up in one turn of the
# event loop: some thirty pods.
READ_BYTES = 65_536
ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class _Rest(RESTClientObject):
    """The REST client of `kubernetes`, over a connection pool that suits a long-lived scheduler."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize,
            ssl=self.ssl_context,
            keepalive_timeout=KEEPALIVE_S,
            socket_factory=_probed_socket,
        )

    def _create_pool_manager(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._create_connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BYTES,
            trust_env=False,  # see credentials: it costs a thread at each request
        )


class Api:
    """One API server. Made by `connect`."""

    def __init__(
        self, credentials: Credentials, *, timeout_s: float, connect_timeout_s: float
    ) -> None:
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        configuration = credentials.configuration
        self.host: str = configuration.host
        self._certificate = _certificate_of(configuration)
        try:
            self._rest = _Rest(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ClusterConfigError(
                f"the certificates for {self.host} cannot be used: {error}"
            ) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()

    async def get(
        self, path: str, *, query: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Raw:
        """GET ``path`` (from ``/api`` on).

        Raises:
            ApiError: the server refuses.
            ApiTimeoutError, ApiUnreachableError: no answer within ``timeout_s``, or none at all.
        """
        return await self._exchange("GET", path, query=query, timeout_s=timeout_s)

    async def post(self, path: str, body: Raw, *, timeout_s: float | None = None) -> Raw:
        """POST ``body``; raises as `get` does, but what was ``sent`` may have been done."""
        return await self._exchange("POST", path, body=body, timeout_s=timeout_s)

    async def patch(self, path: str, body: Raw, *, timeout_s: float | None = None) -> Raw:
        """PATCH with a JSON merge patch; raises as `post` does."""
        return await self._exchange("PATCH", path, body=body, timeout_s=timeout_s)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, Any], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a long answer, of any length; raises as `get` does, at any moment.

        ``silence_s`` is the longest pause, in seconds, that is believed to be a quiet server and
        not a dead connection.
        """
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=self._timeout_s,
            sock_connect=self._connect_timeout_s,
            sock_read=silence_s,
        )
        answer = await self._send("GET", path, query=query, timeout=timeout)
        try:
            if answer.status != 200:  # noqa: PLR2004
                await self._refuse(answer)
            async with aclosing(self._lines(answer)) as lines:
                yield lines
        finally:
            answer.close()

    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Raw | None = None,
        timeout_s: float | None,
    ) -> Raw:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        # Connecting gets less than the whole, so that "never sent" can be told from "no answer".
        connect_s = min(self._connect_timeout_s, limit_s * 0.8)
        timeout = aiohttp.ClientTimeout(total=limit_s, connect=connect_s)
        answer = await self._send(method, path, query=query, body=body, timeout=timeout)
        if answer.status >= 400:  # noqa: PLR2004
            await self._refuse(answer)
        text = await self._read(answer)
        try:
            return json.loads(text)  # type: ignore[no-any-return]
        except ValueError:
            raise ApiError(
                answer.status, "NotJson", f"{self.host}{path} did not answer with JSON"
            ) from None

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Raw | None = None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the HTTP client keeps it
    ) -> aiohttp.ClientResponse:
        # Not compressed: the server packs long lists for longer than a cluster's network needs.
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": USER_AGENT,
        }
        authorization = await self._credentials.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        else:
            self._take_up_certificate()
        if method == "PATCH":
            headers["Content-Type"] = MERGE_PATCH
        url = f"{self.host}{path}?{urlencode(query)}" if query else f"{self.host}{path}"
        try:
            answer = await self._rest.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
        except ERRORS as error:
            raise self._own(error) from None
        return answer.response  # type: ignore[no-any-return]

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        try:
            return await answer.read()
        except ERRORS as error:
            raise self._own(error) from None

    async def _lines(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        # Not readline(): it gives up on a line longer than its buffer.
        unfinished: list[bytes] = []
        try:
            async for chunk in response.content.iter_any():
                first, *others = chunk.split(b"\n")
                unfinished.append(first)
                if others:
                    yield b"".join(unfinished)
                    unfinished = [others.pop()]
                    for line in others:
                        yield line
        except ERRORS as error:
            raise self._own(error) from None

    async def _refuse(self, answer: aiohttp.ClientResponse) -> NoReturn:
        """Raise what an answer of status 400 or more says."""
        if answer.status == 401:  # noqa: PLR2004
            self._credentials.expire()
        text = await self._read(answer)
        try:
            status = json.loads(text)
            reason, message = str(status["reason"]), str(status["message"])
        except (ValueError, KeyError, TypeError):  # a proxy's page, or the server's plain text
            reason = str(answer.reason)
            message = text[:200].decode("utf-8", "replace").strip()
        raise ApiError(
            answer.status,
            reason,
            message,
            retry_after_s=_seconds(answer.headers.get("Retry-After")),
        )

    def _own(self, error: Exception) -> ClusterError:
        unsent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
        told = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            return ApiTimeoutError(
                f"{self.host} did not answer in time", sent=not isinstance(error, unsent)
            )
        return ApiUnreachableError(
            f"{self.host} cannot be reached: {told}", sent=not isinstance(error, unsent)
        )

    def _take_up_certificate(self) -> None:
        """Show a renewed client certificate on new connections."""
        configuration = self._credentials.configuration
        certificate = _certificate_of(configuration)
        if certificate is not None and certificate != self._certificate:
            self._certificate = certificate
            try:
                self._rest.ssl_context.load_cert_chain(
                    certificate[0], keyfile=configuration.key_file
                )
            except (OSError, ssl.SSLError):  # half written; the next request looks again
                self._certificate = None


@asynccontextmanager
async def connect(  # noqa: PLR0913
    kubeconfig: str | None = None,
    *,
    pool_size: int = 64,
    timeout_s: float = 30.0,
    connect_timeout_s: float = 2.0,
    environ: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Api]:
    """A connection to the API server, closed at the end of the block. It need not be up yet.

    Args:
        kubeconfig: path of a kubeconfig. None: the pod's service account where there is one, else
            ``$KUBECONFIG``, else ``~/.kube/config``.
        pool_size: connections at most; each watch holds one of them for as long as it runs.
        timeout_s: the longest a request may take that says nothing else, in seconds.
        connect_timeout_s: the longest that connecting, or waiting for one of the pool's
            connections, may take.
        environ: the environment, ``os.environ`` by default.
        clock: monotonic seconds.

    Raises:
        ClusterConfigError: nothing usable is configured.
    """
    credentials = await load_credentials(
        kubeconfig,
        environ=os.environ if environ is None else environ,
        clock=clock,
        pool_size=pool_size,
    )
    api = Api(credentials, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
    try:
        yield api
    finally:
        await api.close()


def _probed_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES.items():
        if hasattr(socket, option):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _certificate_of(configuration: Any) -> tuple[str, float] | None:
    """The client certificate's file and when it was written; None where there is none."""
    path = configuration.cert_file
    try:
        return (path, Path(path).stat().st_mtime) if path else None
    except OSError:
        return None


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
