"""Clients of model servers: the interface that HTTP and gRPC have in common."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from scheduler.gateway.calls import Headers
from scheduler.oip.batch import RowRange
from scheduler.oip.tensor import Tensor

CLIENT_ERRORS = range(400, 500)
MODEL_FAILED = 500
_SETUP_ERRORS = frozenset({401, 403, 404, 405, 407, 408, 409, 429})  # of its setup or its load


class ModelServerError(Exception):
    """A batch without an answer; the text states why.

    Attributes:
        status: HTTP status of the model server, or 502, 503 or 504 if it sent none.
        retryable: true if another model server may answer: the connection to this one was refused,
            reset or closed before the last byte of its answer. It may have run the batch.
        is_unreachable: true if there was no connection to the server.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retryable: bool = False,
        is_unreachable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.is_unreachable = is_unreachable

    @property
    def is_refusal(self) -> bool:
        """True if the server says that the request is invalid."""
        return self.status in CLIENT_ERRORS and self.status not in _SETUP_ERRORS


class NotOwnerError(ModelServerError):
    """A batch that was not sent, because another replica may serve its pod."""

    def __init__(self) -> None:
        message = "another replica serves this namespace now; send it again"
        super().__init__(503, message, retryable=True)


class ModelServer(Protocol):
    """Client of the model server in one pod; it sends several requests at a time.

    Attributes:
        binary: form of the tensors that it sends; requests have passed `InferRequest.in_form`.
    """

    binary: bool

    async def infer(
        self,
        model: str,
        ranges: Sequence[RowRange],
        *,
        timeout_ms: float | None,
        headers: Headers = (),
    ) -> tuple[Tensor, ...]:
        """Send joinable rows as one batch; return tensors with a row for each of them.

        A cancelled call closes its connection.

        Args:
            model: name of the model at the server.
            ranges: row ranges of the batch, one or more.
            timeout_ms: longest time for the answer, or None for no limit.
            headers: headers that are sent along.

        Raises:
            ModelServerError: there is no valid answer.
        """

    async def ready(self, model: str) -> bool:
        """Return true if the server says that the model is ready; false without an answer."""

    async def metadata(self, model: str) -> dict[str, Any]:
        """Return the protocol's metadata object of the model.

        Raises:
            ModelServerError: there is no valid answer.
        """

    def close_idle(self) -> None:
        """Close idle connections, because some servers wait for their ends before they stop.

        A batch connects again.
        """

    async def close(self) -> None:
        """Close all connections; calls in flight end with an error."""


class GuardedServer:
    """Client of a model server that sends each batch within a guard.

    Args:
        server: client that sends the batches.
        guard: returns the context of one batch; its entry may wait, or raise a `ModelServerError`.
    """

    def __init__(
        self, server: ModelServer, guard: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        self._server = server
        self._guard = guard
        self.binary = server.binary
        self.ready = server.ready
        self.metadata = server.metadata
        self.close_idle = server.close_idle
        self.close = server.close

    async def infer(
        self,
        model: str,
        ranges: Sequence[RowRange],
        *,
        timeout_ms: float | None,
        headers: Headers = (),
    ) -> tuple[Tensor, ...]:
        """Send a batch within the guard; see `ModelServer.infer`."""
        async with self._guard():
            return await self._server.infer(model, ranges, timeout_ms=timeout_ms, headers=headers)
