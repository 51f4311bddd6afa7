"""The bound on the bytes of all bodies that the gateway holds; all fronts share one."""

from collections import deque
from collections.abc import Callable

from scheduler.gateway.calls import CallError

_SCARCE_RATIO = 0.8
_RETRY_AFTER_S = 1.0  # bodies are held for as long as an SLO, which is a second or so


class BodyMemory:
    """Bytes reserved for bodies, from their announcement until their answer is sent.

    Attributes:
        limit_bytes: largest sum of the reservations.
        on_refused: callback with the status of each body that is refused for its size.
        held_bytes: bytes that are reserved now.
    """

    def __init__(
        self, limit_bytes: int, on_refused: Callable[[int], None] = lambda _: None
    ) -> None:
        self.limit_bytes = limit_bytes
        self.on_refused = on_refused
        self.held_bytes = 0
        self._scarce_bytes = _SCARCE_RATIO * limit_bytes
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_scarce(self) -> bool:
        """True above 80 %: fronts stop reading further requests then."""
        return self.held_bytes > self._scarce_bytes

    def reserve(self, size_bytes: int) -> None:
        """Reserve the memory of a body, or of its next part.

        Raises:
            CallError: 429; the bodies held leave no room.
        """
        if self.held_bytes + size_bytes > self.limit_bytes:
            self.on_refused(429)
            raise CallError(
                429,
                f"a body of {size_bytes:,} bytes does not fit: the gateway holds "
                f"{self.held_bytes:,} of {self.limit_bytes:,} bytes; send the request again later",
                _RETRY_AFTER_S,
            )
        self.held_bytes += size_bytes

    def hold(self, size_bytes: int) -> None:
        """Count memory that is in use already."""
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Return reserved memory; call those who wait for it."""
        self.held_bytes -= size_bytes
        while self._waiting and not self.is_scarce:
            self._waiting.popleft()()

    def when_plentiful(self, callback: Callable[[], None]) -> None:
        """Call back once, when memory is no longer scarce."""
        self._waiting.append(callback)
