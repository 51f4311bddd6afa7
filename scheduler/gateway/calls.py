"""Calls of clients: what a front hands to the backend, and what it gets back.

Fronts speak a protocol (HTTP, gRPC) and decide nothing; the backend queues, batches and dispatches.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from scheduler.model.message_text import quoted
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.tensor import Tensor

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, and values."""
MODEL_VERSION: Final = "1"
"""The only version of each workflow."""
RETRY_AFTER_S: Final = 1.0
"""Time before another attempt, where no better one is known."""
_TEMPORARY: Final = (429, 503)


class InferCall(NamedTuple):
    """One request of a client.

    Attributes:
        namespace: namespace of the workflow.
        workflow: name of the workflow.
        stage: only stage to run, or None for the whole workflow.
        request: parsed body.
        arrival_ms: end of the headers' arrival, or an earlier arrival at a proxy; the backend's
            clock.
        timeout_ms: time limit of the client, counted from the arrival; None: the workflow's SLO.
        headers: headers to pass on to model servers.
        authorization: header with the client's token, which no model server gets.
    """

    namespace: str
    workflow: str
    stage: str | None
    request: InferRequest
    arrival_ms: float
    timeout_ms: float | None
    headers: Headers = ()
    authorization: bytes = b""


class InferAnswer(NamedTuple):
    """The outputs for one call, and the times of its stages.

    Attributes:
        outputs: tensors with one row for each row of the request.
        queue_ms: time in queues.
        execute_ms: time at model servers.
        batch: rows of the largest batch that the request was part of.
        cold_start: true if the request waited for the start of a pod.
    """

    outputs: Sequence[Tensor]
    queue_ms: float
    execute_ms: float
    batch: int
    cold_start: bool


class CallError(Exception):
    """A call without an answer; the text states why, and what to do.

    Attributes:
        status: HTTP status: 400, 404, 413, 429, 502, 503 or 504.
        retry_after_s: time after which another attempt may succeed, or None. Default:
            `RETRY_AFTER_S` with status 429 or 503.
    """

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        if retry_after_s is None and status in _TEMPORARY:
            retry_after_s = RETRY_AFTER_S
        self.status = status
        self.retry_after_s = retry_after_s


class CallMovedError(CallError):
    """A call that another replica of the gateway answers, and counts."""

    def __init__(self) -> None:
        super().__init__(421, "another replica serves this namespace; send the request to it")


def check_version(workflow: str, version: str) -> None:
    """Check the model version that a call names.

    Raises:
        CallError: 404; there is no such version.
    """
    if version != MODEL_VERSION:
        raise CallError(
            404,
            f"workflow {quoted(workflow)} has version {MODEL_VERSION} alone; call it with this "
            "version, or without one",
        )


class Backend(Protocol):
    """The part of the gateway that answers calls."""

    def now_ms(self) -> float:
        """Return the time of the clock that `InferCall.arrival_ms` uses."""

    def check(self, namespace: str, workflow: str, stage: str | None, body_bytes: int) -> None:
        """Check a call before its body is read.

        Args:
            namespace: namespace of the workflow.
            workflow: name of the workflow.
            stage: only stage to run, or None.
            body_bytes: announced size of the body; 0 if it is unknown.

        Raises:
            CallError: 404 for an unknown workflow or stage, or 413, 429 or 503.
        """

    def submit(self, call: InferCall) -> "Future[InferAnswer]":
        """Start a call.

        The future ends with a `CallError` or a `MessageError` if there is no answer. The front
        cancels it when the client hangs up.
        """

    def ready(
        self, namespace: str | None = None, workflow: str | None = None, stage: str | None = None
    ) -> bool:
        """Return true if the gateway, the workflow or the stage answers requests.

        Raises:
            CallError: 404 for an unknown workflow or stage.
        """

    async def metadata(self, namespace: str, workflow: str, stage: str | None) -> dict[str, Any]:
        """Return the protocol's metadata object of a workflow or a stage.

        Raises:
            CallError: the workflow or stage is unknown, or no model server answers.
        """
