"""Client of a model server by HTTP, with tensors as binary data or as JSON."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from scheduler.gateway.calls import Headers
from scheduler.gateway.http.exchange import HttpResponse
from scheduler.gateway.http.pool import HttpPool, error_text
from scheduler.gateway.model_server import ModelServerError
from scheduler.oip.batch import RowRange, join
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_response import parse_response
from scheduler.oip.message import HEADER_LENGTH, decode
from scheduler.oip.tensor import Tensor

_OK, _NOT_FOUND = 200, 404
_ERRORS = frozenset(status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)
"""Statuses that clients get with the text; others mean no error to them, or nothing."""
_HEADER_LENGTH = HEADER_LENGTH.lower().encode()
_LENGTH_LINE = b"%b: %%d\r\n" % HEADER_LENGTH.encode()
_LOOK_UP_S = 5.0  # for an answer without inference


class HttpModelServer:
    """Client of one pod; each request in flight has a connection of its own, and idle ones stay.

    Args:
        host: address of the pod.
        port: port of the model server in that pod.
        binary: true for tensors in binary form, false for JSON.
        connect_s: longest time to connect.
        answer_bytes_max: size of the largest answer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        binary: bool,
        connect_s: float = 3.0,
        answer_bytes_max: int = 2**30,
    ) -> None:
        self.binary = binary
        self._pool = HttpPool(host, port, connect_s=connect_s, answer_bytes_max=answer_bytes_max)
        self._name = self._pool.name
        self._lines: dict[str, bytes] = {}  # by model; a FunctionServer names one

    async def infer(
        self,
        model: str,
        ranges: Sequence[RowRange],
        *,
        timeout_ms: float | None,
        headers: Headers = (),
    ) -> tuple[Tensor, ...]:
        """Send joinable rows as one batch; see `ModelServer.infer`."""
        timeout_us = None if timeout_ms is None else max(1, int(timeout_ms * 1000))
        message = join(ranges, binary=self.binary, timeout_us=timeout_us)
        lines = [b"%b: %b\r\n" % header for header in headers]
        if message.header_length is not None:
            lines.append(_LENGTH_LINE % message.header_length)
        head = b"%bContent-Length: %d\r\n%b\r\n" % (
            self._first_lines(model),
            message.content_length,
            b"".join(lines),
        )
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        response = await self._pool.send((head, message.header, *message.buffers), timeout_s)
        self._check_status(response)
        header_length = response.headers.get(_HEADER_LENGTH)
        text = None if header_length is None else header_length.decode("latin-1")
        try:
            return parse_response(response.body, text, rows=sum([item.rows for item in ranges]))
        except MessageError as error:
            raise ModelServerError(error.status, f"{self._name}: {error}") from None

    async def ready(self, model: str) -> bool:
        """Return true if the server says that the model is ready; false without an answer."""
        try:
            response = await self._get(_path(model, "/ready"))
            if response.status == _NOT_FOUND:  # TorchServe has no such route
                response = await self._get("/ping")
        except ModelServerError:
            return False
        return response.status == _OK

    async def metadata(self, model: str) -> dict[str, Any]:
        """Return the protocol's metadata object of the model.

        Raises:
            ModelServerError: there is no valid answer.
        """
        response = await self._get(_path(model))
        self._check_status(response)
        try:
            return decode(response.body, None)[0]
        except MessageError as error:
            raise ModelServerError(502, f"the metadata of {self._name}: {error}") from None

    def close_idle(self) -> None:
        """Close the connections without a request."""
        self._pool.close_idle()

    async def close(self) -> None:
        """Close all connections; calls in flight end with an error."""
        await self._pool.close()

    async def _get(self, path: str) -> HttpResponse:
        head = f"GET {path} HTTP/1.1\r\nHost: {self._name}\r\n\r\n"
        return await self._pool.send((head.encode(),), _LOOK_UP_S)

    def _first_lines(self, model: str) -> bytes:
        """Return the lines that all requests to a model begin with."""
        lines = self._lines.get(model)
        if lines is None:
            content_type = "octet-stream" if self.binary else "json"
            lines = self._lines[model] = (
                f"POST {_path(model, '/infer')} HTTP/1.1\r\n"
                f"Host: {self._name}\r\nContent-Type: application/{content_type}\r\n"
            ).encode()
        return lines

    def _check_status(self, response: HttpResponse) -> None:
        if response.status != _OK:
            raise ModelServerError(
                response.status if response.status in _ERRORS else 502,
                f"{self._name} answered {response.status}: {error_text(response.body)}",
            )


def _path(model: str, route: str = "") -> str:
    return f"/v2/models/{quote(model, safe='')}{route}"
