"""What can go wrong between this process and the API server, in our own words."""


class ClusterError(Exception):
    """Anything that went wrong between this process and the API server."""


class ClusterConfigError(ClusterError):
    """No usable way to an API server is configured; the message says what was looked for."""


class ApiError(ClusterError):
    """The API server answered, and the answer is a refusal.

    Attributes:
        status: the HTTP status, or the code of a Status object in a watch.
        reason: Kubernetes' word for it (``NotFound``, ``Conflict``, ``Expired``, ...).
        message: the server's sentence.
        retry_after_s: what the server asks to be waited, in seconds, where it asks that.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {reason}: {message}")


class NoAnswerError(ClusterError):
    """No answer came.

    Attributes:
        sent: False only if the request certainly never left this process. Where it is True, a write
            may have been done, or may still be done after this was raised.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


class ApiUnreachableError(NoAnswerError):
    """No connection could be made, or it broke."""


class ApiTimeoutError(NoAnswerError):
    """The time allowed has passed."""
