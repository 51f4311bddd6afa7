"""Exceptions of this package."""

from pydantic_core import to_json


class MessageError(ValueError):
    """An invalid message; the text states what is wrong, where, and what to do.

    Attributes:
        status: HTTP status of the answer: 400 for a client's message, 502 for a server's.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status

    def body(self) -> bytes:
        """Return the protocol's error object as JSON."""
        return to_json({"error": str(self)})
