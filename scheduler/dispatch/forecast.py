"""Pre-warming: forecast of the next request, and start of a container for it.

The paper's rule in short: an exponentially weighted mean of inter-arrival times predicts the next
arrival; a container starts one cold start before it; later stages add the planned times.
"""

from math import inf

INTERVAL_MIN_MS = 1e-3  # requests at the same moment are so far apart
WEIGHT = 0.3  # of the newest inter-arrival time in the mean; our choice, the paper has none


class Forecast:
    """Forecast of the next arrival in one stream of requests."""

    __slots__ = ("_last_ms", "mean_ms", "next_ms")

    def __init__(self) -> None:
        self._last_ms = -inf
        self.mean_ms = inf
        self.next_ms = inf  # not predicted before the second arrival

    def arrived(self, now_ms: float) -> None:
        """Record an arrival."""
        interval_ms = now_ms - self._last_ms
        if self.mean_ms < inf:
            self.mean_ms += WEIGHT * (interval_ms - self.mean_ms)
        else:
            self.mean_ms = interval_ms
        self._last_ms = now_ms
        self.next_ms = now_ms + self.mean_ms

    def expected_rows(self, duration_ms: float, now_ms: float) -> float:
        """Return the mean number of rows that arrive; an overdue one makes them rarer."""
        return duration_ms / max(self.mean_ms, now_ms - self._last_ms, INTERVAL_MIN_MS)

    def start_at_ms(self, planned_ms: float, cold_start_ms: float) -> float:
        """Return the start time of a container for a stage ``planned_ms`` after the next arrival.

        A past time means now; inf: no forecast.
        """
        return self.next_ms + planned_ms - cold_start_ms
