"""Retries: their order, and when the minimum configuration is forced (ESG_Dispatch)."""

from collections.abc import Iterable
from math import inf
from typing import Protocol, TypeVar


class Waiting(Protocol):
    """A queue whose jobs could not be placed."""

    @property
    def deadline_ms(self) -> float:
        """Deadline of its oldest job."""
        ...

    @property
    def number(self) -> int:
        """Index among all queues: the order among equal deadlines."""
        ...


QueueT = TypeVar("QueueT", bound=Waiting)


class RetryState:
    """Count of a queue's consecutive placement failures, and the limit that forces a run.

    A queue is retried whenever any container ends, on a full cluster every few ms. A failure within
    ``retry_ms`` after a counted one does not count: three container ends in a row would otherwise
    force nearly every run.

    Attributes:
        missed: number of consecutive counted failures of all candidates on all nodes.
        forced: true if the minimum configuration is tried in addition to the candidates, on any
            node, whatever its cold start takes: so no queue starves for lack of a large share.
    """

    __slots__ = ("_counted_ms", "_misses_max", "_retry_ms", "forced", "missed")

    def __init__(self, misses_max: int, retry_ms: float) -> None:
        """Force after ``misses_max`` failures; 0: never."""
        self._misses_max = misses_max
        self._retry_ms = retry_ms
        self._counted_ms = -inf
        self.missed = 0
        self.forced = False

    def miss(self, now_ms: float) -> None:
        """Record that no node can hold any candidate."""
        if now_ms - self._counted_ms < self._retry_ms:
            return
        self._counted_ms = now_ms
        self.missed += 1
        self.forced = 0 < self._misses_max <= self.missed

    def hit(self) -> None:
        """Record a placement."""
        self.missed = 0
        self.forced = False
        self._counted_ms = -inf


def most_urgent_first(queues: Iterable[QueueT]) -> list[QueueT]:
    """Order queues by the deadline of their oldest job."""
    return sorted(queues, key=lambda queue: (queue.deadline_ms, queue.number))
