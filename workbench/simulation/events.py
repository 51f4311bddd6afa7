"""Event queue: events in order of time, then of kind, then of insertion."""

from heapq import heappush
from typing import Any

# The kinds, in the order in which they happen at one moment: runs end first, because that frees
# capacity; arrivals, which are not in the queue but read from their stream, come last.
RUN_ENDED = 0
CONTAINER_READY = 1
PREWARM_DUE = 2
RETRY = 3
RESCALE = 4
KEEP_ALIVE_ENDED = 5
CAPACITY_CHANGED = 6

Entry = tuple[float, int, int, Any]  # time, kind, number, subject


class EventQueue:
    """Heap of entries; the number makes their order total."""

    __slots__ = ("_pushed", "heap")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self._pushed = 0

    def push(self, time_ms: float, kind: int, subject: Any) -> None:
        """Add an event."""
        self._pushed += 1
        heappush(self.heap, (time_ms, kind, self._pushed, subject))
