"""Headers of answers: their status, and the reason of an error."""

from math import ceil
from typing import Final
from urllib.parse import quote

from scheduler.gateway.calls import CallError
from scheduler.oip.errors import MessageError

Headers = list[tuple[str, str]]
HEAD: Final = [(":status", "200"), ("content-type", "application/grpc")]
"""Headers in front of a message."""
SUCCESS: Final = ("grpc-status", "0")
RETRY_PUSHBACK: Final = "grpc-retry-pushback-ms"
"""Trailing metadata with the time before another attempt; gRPC's own retries follow it."""
_DETAILS_MAX: Final = (
    600  # clients take 8 KiB of metadata, and a character has up to 12 bytes there
)
_SAFE: Final = " !\"#$&'()*+,/:;<=>?@[]^`{|}"  # all other characters are escaped, and so is %
_INTERNAL: Final = 13
GRPC_STATUS: Final = {
    400: 3,  # INVALID_ARGUMENT
    401: 16,  # UNAUTHENTICATED
    403: 7,  # PERMISSION_DENIED
    404: 5,  # NOT_FOUND
    408: 4,  # DEADLINE_EXCEEDED
    409: 10,  # ABORTED
    413: 8,  # RESOURCE_EXHAUSTED
    422: 3,  # INVALID_ARGUMENT
    429: 8,  # RESOURCE_EXHAUSTED
    501: 12,  # UNIMPLEMENTED
    503: 14,  # UNAVAILABLE
    504: 4,  # DEADLINE_EXCEEDED
}
"""Status of an answer to a client; INTERNAL for all others."""


def refusal(error: CallError | MessageError) -> Headers:
    """Return the headers of an answer that is an error alone."""
    headers = [
        *HEAD,
        ("grpc-status", str(GRPC_STATUS.get(error.status, _INTERNAL))),
        ("grpc-message", quote(str(error)[:_DETAILS_MAX], safe=_SAFE)),
    ]
    if isinstance(error, CallError) and error.retry_after_s is not None:
        headers.append((RETRY_PUSHBACK, str(ceil(1000 * error.retry_after_s))))
    return headers
