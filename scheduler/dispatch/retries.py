"""What is tried again, in which order, and when it is forced (ESG_Dispatch)."""

from collections.abc import Iterable
from math import inf
from typing import Protocol, TypeVar


class Waiting(Protocol):
    """A queue that found no room."""

    @property
    def deadline_ms(self) -> float:
        """Of its oldest job."""
        ...

    @property
    def number(self) -> int:
        """Its place among all queues: the order among those due at once."""
        ...


QueueT = TypeVar("QueueT", bound=Waiting)


class RetryState:
    """How often in a row a queue found no room, and when that is often enough.

    A queue is looked at whenever a container ends anywhere, which on a full cluster is every few
    ms. Looks that come sooner than ``retry_ms`` after one that counted do not count: three ends in
    a row would otherwise make nearly every run a forced one.

    Attributes:
        missed: looks in a row that counted and at which no node held any candidate.
        forced: whether the minimum configuration is to be tried beside the candidates, on any
            node, whatever a start takes there: so nothing starves for want of a large share.
    """

    __slots__ = ("_counted_ms", "_most", "_retry_ms", "forced", "missed")

    def __init__(self, misses_max: int, retry_ms: float) -> None:
        """Force after so many misses; 0: never."""
        self._most = misses_max
        self._retry_ms = retry_ms
        self._counted_ms = -inf
        self.missed = 0
        self.forced = False

    def miss(self, now_ms: float) -> None:
        """No node held any candidate."""
        if now_ms - self._counted_ms < self._retry_ms:
            return
        self._counted_ms = now_ms
        self.missed += 1
        self.forced = 0 < self._most <= self.missed

    def hit(self) -> None:
        """Something runs."""
        self.missed = 0
        self.forced = False
        self._counted_ms = -inf


def most_urgent_first(queues: Iterable[QueueT]) -> list[QueueT]:
    """Room goes to the queue whose oldest job is due first."""
    return sorted(queues, key=lambda queue: (queue.deadline_ms, queue.number))
