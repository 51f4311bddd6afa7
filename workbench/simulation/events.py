"""The agenda: what will happen, popped in order of time, then of kind, then of being pushed."""

from heapq import heappush
from typing import Any

# The kinds, in the order in which they happen at one moment: what ends comes first, for it makes
# room; arrivals, which are no entries of the agenda but read from their stream, come last.
RUN_ENDED = 0
CONTAINER_READY = 1
PREWARM_DUE = 2
ASK_AGAIN = 3
RESCALE = 4
KEEP_ALIVE_OVER = 5

Entry = tuple[float, int, int, Any]  # when, kind, number, whom it concerns


class EventQueue:
    """A heap of entries; the number makes their order total."""

    __slots__ = ("_pushed", "heap")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self._pushed = 0

    def push(self, when_ms: float, kind: int, subject: Any) -> None:
        """It will happen then."""
        self._pushed += 1
        heappush(self.heap, (when_ms, kind, self._pushed, subject))
