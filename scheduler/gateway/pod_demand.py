"""Number of pods that a function needs, for an autoscaler outside of the gateway.

It follows from the time that the function's batches take: an autoscaler that follows the number
keeps the pods busy for a fixed part of their time. A short window follows a rise at once, and a
long one keeps the pods after it. `scheduler.dispatch.scaling.scaler.Scaler` cannot answer this: it
decides for pods that the gateway creates, from rates, deadlines and profiles, and chooses their
share too. An autoscaler has pods of one share, which somebody else chose.
"""

from collections import deque
from collections.abc import Callable
from math import ceil

from scheduler.dispatch.pods import FunctionKey

BUSY_RATIO = 0.75  # the rest is for arrivals that come together
WINDOWS_S = (10, 60)
_BUCKET_S = 1.0


class PodDemand:
    """Load of each function.

    Args:
        clock_s: monotonic seconds.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._busy: dict[FunctionKey, deque[list[float]]] = {}  # begin of a bucket, busy seconds
        self._unserved_s: dict[
            FunctionKey, float
        ] = {}  # time of the last request without an answer

    def ran(self, function: FunctionKey, busy_s: float) -> None:
        """Count a batch that has ended."""
        now_s = self._clock_s()
        buckets = self._busy.setdefault(function, deque())
        if not buckets or now_s >= buckets[-1][0] + _BUCKET_S:
            buckets.append([now_s, 0.0])
            while buckets[0][0] < now_s - WINDOWS_S[-1]:
                buckets.popleft()
        buckets[-1][1] += busy_s

    def unserved(self, function: FunctionKey) -> None:
        """Note that a request was refused or dropped."""
        self._unserved_s[function] = self._clock_s()

    def wanted(self, function: FunctionKey, *, pods: int, slots: int) -> int:
        """Return the number of pods that the load needs.

        Args:
            function: key of the function.
            pods: number of pods that are ready.
            slots: number of batches that a pod has at the same time.
        """
        now_s = self._clock_s()
        wanted = 0
        for window_s in WINDOWS_S:
            busy_s = [
                busy_s
                for begin_s, busy_s in self._busy.get(function, ())
                if begin_s > now_s - window_s
            ]
            if busy_s:  # a batch may take less than the clock shows
                wanted = max(wanted, 1, ceil(sum(busy_s) / (window_s * BUSY_RATIO * slots)))
        since_s = now_s - self._unserved_s.get(function, -1e9)
        return max(wanted, pods + 1) if since_s < WINDOWS_S[0] else wanted
