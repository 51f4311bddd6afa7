"""The connection to the API server: JSON in, JSON out.

Without models: the generated ones of `kubernetes` validate every field of every object, and in
kubespawner that conversion took more than half of the CPU. The connection itself is the library's:
configuration, authentication, certificates and the REST client.
"""

import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from scheduler.cluster.credentials import SERVICE_ACCOUNT, Credentials, load_credentials
from scheduler.cluster.errors import (
    ApiError,
    ApiTimeoutError,
    ApiUnreachableError,
    ClusterConfigError,
    ClusterError,
)
from scheduler.cluster.pool import PooledRest

Raw: TypeAlias = dict[str, Any]
"""A Kubernetes object as its JSON."""

USER_AGENT = "esg-scheduler"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, Any] | None = None
    body: Raw | None = None
    form: str = "application/json"


class Api:
    """One API server, created by `connect`."""

    def __init__(
        self, credentials: Credentials, *, timeout_s: float, connect_timeout_s: float
    ) -> None:
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        configuration = credentials.configuration
        self.host: str = configuration.host
        try:
            _ = URL(self.host, encoded=True).port  # it is read only then
        except ValueError as error:
            raise ClusterConfigError(f"{self.host} is no address of a server: {error}") from None
        try:
            self._rest = PooledRest(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ClusterConfigError(
                f"cannot use the certificates for {self.host}: {error}"
            ) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()

    async def token(self) -> str:
        """Return the bearer token of this process; empty if it has another credential."""
        scheme, _, token = (await self._credentials.authorization() or "").partition(" ")
        return token if scheme == "Bearer" else ""

    async def get(
        self, path: str, *, query: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Raw:
        """GET ``path`` (from ``/api`` on).

        Raises:
            ApiError: the server answers with an error.
            ApiTimeoutError, ApiUnreachableError: no answer within ``timeout_s``, or no connection.
        """
        return await self._exchange(_Request("GET", path, query), timeout_s)

    async def read(
        self, path: str, *, query: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> bytes:
        """GET like `get`, but return the text: for callers that choose when to parse it."""
        return await self._fetch(_Request("GET", path, query), timeout_s)

    async def post(self, path: str, body: Raw, *, timeout_s: float | None = None) -> Raw:
        """POST ``body``; raises like `get`, but if ``sent``, the write may have happened."""
        return await self._exchange(_Request("POST", path, body=body), timeout_s)

    async def patch(
        self, path: str, body: Raw, *, form: str = MERGE_PATCH, timeout_s: float | None = None
    ) -> Raw:
        """PATCH with a JSON merge patch, or a body of another form; raises like `post`."""
        return await self._exchange(_Request("PATCH", path, body=body, form=form), timeout_s)

    async def delete(
        self, path: str, body: Raw | None = None, *, timeout_s: float | None = None
    ) -> Raw:
        """DELETE, with DeleteOptions as its body; raises like `post`."""
        return await self._exchange(_Request("DELETE", path, body=body), timeout_s)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, Any], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of a long answer, of any length; raises like `get`, at any time.

        ``silence_s`` is the longest pause, in seconds, before the connection counts as dead.
        """
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=self._timeout_s,
            sock_connect=self._connect_timeout_s,
            sock_read=silence_s,
        )
        answer = await self._send(_Request("GET", path, query), timeout)
        try:
            if answer.status != 200:  # noqa: PLR2004
                await self._refuse(answer)
            async with aclosing(self._lines(answer)) as lines:
                yield lines
        finally:
            # `close` alone leaves it open for the server's end of TLS, up to half a minute.
            if (connection := answer.connection) is not None and connection.transport is not None:
                connection.transport.abort()
            answer.close()

    async def _exchange(self, request: _Request, timeout_s: float | None) -> Raw:
        text = await self._fetch(request, timeout_s)
        try:
            return json.loads(text)  # type: ignore[no-any-return]
        except ValueError:
            message = f"the answer of {self.host}{request.path} is not JSON"
            raise ApiError(200, "NotJson", message) from None

    async def _fetch(self, request: _Request, timeout_s: float | None) -> bytes:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if limit_s <= 0:  # the HTTP client would take it as no limit
            raise ApiTimeoutError(f"no time left to call {self.host}", sent=False)
        # Connecting gets less than the whole, to distinguish "never sent" from "no answer".
        connect_s = min(self._connect_timeout_s, limit_s * 0.8)
        answer = await self._send(request, aiohttp.ClientTimeout(total=limit_s, connect=connect_s))
        if answer.status >= 400:  # noqa: PLR2004
            await self._refuse(answer)
        return await self._read(answer)

    async def _send(
        self,
        request: _Request,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the HTTP client keeps it
    ) -> aiohttp.ClientResponse:
        # Uncompressed: compression of a long list takes the server longer than a cluster's network.
        headers = {
            "Accept": "application/json, application/jwk-set+json",  # the keys of tokens
            "Accept-Encoding": "identity",
            "Content-Type": request.form,
            "User-Agent": USER_AGENT,
        }
        authorization = await self._credentials.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        else:
            self._rest.reload_certificate()
        url = f"{self.host}{request.path}"
        if request.query:
            url += f"?{urlencode(request.query)}"
        body = None if request.body is None else json.dumps(request.body).encode()
        try:
            return await self._rest.send(
                request.method, URL(url, encoded=True), headers=headers, body=body, timeout=timeout
            )
        except ERRORS as error:
            raise self._translated(error) from None

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        try:
            return await answer.read()
        except ERRORS as error:
            raise self._translated(error) from None

    async def _lines(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        # Not readline(): it fails on a line that is longer than its buffer.
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
            raise self._translated(error) from None

    async def _refuse(self, answer: aiohttp.ClientResponse) -> NoReturn:
        """Raise an answer of status 400 or more as an `ApiError`."""
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
            retry_after_s=_retry_after_s(answer.headers.get("Retry-After")),
        )

    def _translated(self, error: Exception) -> ClusterError:
        unsent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
        sent = not isinstance(error, unsent)
        if isinstance(error, TimeoutError):
            return ApiTimeoutError(f"{self.host} did not answer in time", sent=sent)
        reason = str(error) or type(error).__name__
        return ApiUnreachableError(f"cannot reach {self.host}: {reason}", sent=sent)


@asynccontextmanager
async def connect(  # noqa: PLR0913
    kubeconfig: str | Path | None = None,
    *,
    pool_size: int = 64,
    timeout_s: float = 30.0,
    connect_timeout_s: float = 2.0,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Api]:
    """Connect to the API server until the block ends. The server need not be up yet.

    Args:
        kubeconfig: path of a kubeconfig. None: the pod's service account if there is one, else
            ``$KUBECONFIG``, else ``~/.kube/config``.
        pool_size: maximum number of connections; each watch holds one while it runs.
        timeout_s: time limit of a request without its own, in seconds.
        connect_timeout_s: time limit for connecting, or for one of the pool's connections to become
            free.
        environ: environment variables; by default ``os.environ``.
        service_account: folder with a pod's token and the server's certificate.
        clock: monotonic clock, in seconds.

    Raises:
        ClusterConfigError: no usable API server is configured.
    """
    credentials = await load_credentials(
        None if kubeconfig is None else str(kubeconfig),
        environ=os.environ if environ is None else environ,
        clock=clock,
        pool_size=pool_size,
        service_account=service_account,
    )
    api = Api(credentials, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
    try:
        yield api
    finally:
        await api.close()


def _retry_after_s(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
