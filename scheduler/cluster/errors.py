"""Errors between this process and the API server; no library's errors leave this room."""


class ClusterError(Exception):
    """Any error between this process and the API server."""


class ClusterConfigError(ClusterError):
    """No usable API server is configured; the message lists the places that were tried."""


class ApiError(ClusterError):
    """The API server's error answer.

    Attributes:
        status: HTTP status, or the code of a Status object in a watch.
        reason: reason in Kubernetes' words (``NotFound``, ``Conflict``, ``Expired``, ...).
        retry_after_s: wait that the server requests, in seconds; None: it requests none.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {reason}: {message}")

    def is_not_found(self) -> bool:
        """Return true if the API server says that the object does not exist.

        A proxy or load balancer before it answers 404 too, while it has no route: that says nothing
        about a pod, whose share must not become free.
        """
        return self.status == 404 and self.reason == "NotFound"  # noqa: PLR2004


class NoAnswerError(ClusterError):
    """No answer came.

    Attributes:
        sent: false only if the request certainly never left this process. If true, a write may have
            happened, or may still happen after this error.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


class ApiUnreachableError(NoAnswerError):
    """The connection failed or broke."""


class ApiTimeoutError(NoAnswerError):
    """The time limit has passed."""
