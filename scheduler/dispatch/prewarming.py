"""Pre-warming: when the next request comes, and when a container for it must be started.

The paper's rule, by a summary: an exponentially weighted mean of inter-arrival times predicts the
next arrival; a container is started one cold start before it; later stages add the planned times.
"""

from math import inf

WEIGHT = 0.3  # of the newest inter-arrival time; the rest is the mean's so far. Ours.


class Forecast:
    """The next arrival in one stream of requests."""

    __slots__ = ("_last_ms", "mean_ms", "next_ms")

    def __init__(self) -> None:
        self._last_ms = -inf
        self.mean_ms = inf
        self.next_ms = inf  # not predicted before the second arrival

    def arrived(self, now_ms: float) -> None:
        """A request came."""
        interval_ms = now_ms - self._last_ms
        if self.mean_ms < inf:
            self.mean_ms += WEIGHT * (interval_ms - self.mean_ms)
        else:
            self.mean_ms = interval_ms
        self._last_ms = now_ms
        self.next_ms = now_ms + self.mean_ms

    def start_at_ms(self, planned_ms: float, cold_start_ms: float) -> float:
        """When to start a container for a stage that begins ``planned_ms`` after the arrival.

        It may be past: then at once. Inf: nothing is predicted.
        """
        return self.next_ms + planned_ms - cold_start_ms
