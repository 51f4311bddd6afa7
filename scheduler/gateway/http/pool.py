"""Connections to one HTTP server: each request in flight has one of its own, and idle ones stay."""

import asyncio
import ssl
from collections.abc import Callable, Sequence

from pydantic_core import from_json

from scheduler.gateway.http.exchange import HttpResponse, ServerConnection, StaleConnectionError
from scheduler.gateway.model_server import ModelServerError
from scheduler.model.message_text import quoted, reason_of

_ERROR_TEXT_BYTES = 2000


class HttpPool:
    """Connections to one address.

    Attributes:
        name: address of the server, for headers and messages.

    Args:
        host: address of the server.
        port: port of the server.
        connect_s: longest time to connect.
        answer_bytes_max: size of the largest answer.
        tls: returns the TLS context of a new connection. Default: plain HTTP.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connect_s: float = 3.0,
        answer_bytes_max: int = 2**30,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._address = (host, port)
        self._connect_s = connect_s
        self._answer_bytes_max = answer_bytes_max
        self._tls = tls
        self._connections: set[ServerConnection] = set()
        self._idle: dict[ServerConnection, None] = {}  # the last one used at the end
        self._keeps_idle = True

    @property
    def is_connected(self) -> bool:
        """True if there are connections."""
        return bool(self._connections)

    async def send(
        self, parts: Sequence[bytes | memoryview], timeout_s: float | None
    ) -> HttpResponse:
        """Send a request, head and body; return its response.

        Raises:
            ModelServerError: there is no response.
        """
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        try:
            connection = self._idle_connection()
            if connection is not None:
                try:
                    return await self._exchange(connection, parts, deadline_s)
                except StaleConnectionError:
                    pass  # closed while it was idle, most likely; a new one shows
            async with asyncio.timeout_at(deadline_s):
                connection = await self._connect()
            return await self._exchange(connection, parts, deadline_s)
        except TimeoutError:
            message = f"{self.name} has not answered within {1000 * (timeout_s or 0):,.0f} ms"
            raise ModelServerError(504, message) from None

    def close_idle(self) -> None:
        """Close the connections without a request."""
        while (connection := self._idle_connection()) is not None:
            connection.close()

    def retire(self) -> None:
        """Close each connection as soon as it has no request, from now on."""
        self._keeps_idle = False
        self.close_idle()

    async def close(self) -> None:
        """Close all connections; requests in flight end with an error."""
        for connection in list(self._connections):
            connection.close()

    async def _exchange(
        self,
        connection: ServerConnection,
        parts: Sequence[bytes | memoryview],
        deadline_s: float | None,
    ) -> HttpResponse:
        response = await connection.exchange(parts, deadline_s)
        if not self._keeps_idle:
            connection.close()
        elif connection.is_open:
            self._idle[connection] = None
        return response

    def _idle_connection(self) -> ServerConnection | None:
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_open:
                return connection
        return None

    async def _connect(self) -> ServerConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await loop.create_connection(
                    lambda: ServerConnection(
                        self.name, self._answer_bytes_max, self._connections, self._idle
                    ),
                    *self._address,
                    ssl=None if self._tls is None else self._tls(),
                )
        except OSError as error:  # TimeoutError is one
            reason = reason_of(error) or f"no answer within {self._connect_s:g} s"
            message = f"cannot connect to {self.name}: {reason}"
            raise ModelServerError(503, message, retryable=True, is_unreachable=True) from None
        return connection


def error_text(body: bytes | memoryview) -> str:
    """Return the error message of the protocol or of TorchServe, or the begin of another body."""
    text = bytes(body[:_ERROR_TEXT_BYTES])
    try:
        document = from_json(text)
        return str(document["error"] if "error" in document else document["message"])
    except (ValueError, TypeError, KeyError):
        return quoted(text.decode("utf-8", "replace"))
