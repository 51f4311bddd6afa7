"""Rate of a workflow's rows: the largest of several windows.

A short window shows a rise soon, as far as it is more than chance, and a long one has no short gap.
"""

from collections import deque
from math import sqrt

WINDOWS_MS = (30_000.0, 60_000.0)
SHORT_WINDOWS_MS = (2_000.0, 10_000.0)
CHANCE_DEVIATIONS = 2.0  # of a Poisson count: so far a short window may be above the rate by chance


class ArrivalRate:
    """Rate of a workflow's rows, from their count at each look.

    It is the expected rate until a window has passed.
    """

    def __init__(self, rows_per_ms: float) -> None:
        self._expected = rows_per_ms
        self._counts: deque[tuple[float, int]] = deque()

    def rows_per_ms(self, arrived: int, now_ms: float) -> float:
        """Return the rate; ``arrived`` is the number of rows up to now."""
        counts = self._counts
        if counts and arrived < counts[-1][1]:  # the workflow was removed, and is there again
            counts.clear()
        counts.append((now_ms, arrived))
        while now_ms - counts[0][0] > WINDOWS_MS[-1]:
            counts.popleft()
        age_ms = now_ms - counts[0][0]
        rate = self._expected if age_ms < WINDOWS_MS[-1] else 0.0
        for window_ms in WINDOWS_MS:
            rows, length_ms = self._last(window_ms)
            if length_ms >= 0.9 * window_ms:  # shorter at the beginning, and after a long pause
                rate = max(rate, rows / length_ms)
        for window_ms in SHORT_WINDOWS_MS:
            rows, length_ms = self._last(window_ms)
            certain_rows = rows - CHANCE_DEVIATIONS * sqrt(rows)
            rate = max(rate, certain_rows / max(length_ms, SHORT_WINDOWS_MS[0]))
        return rate

    def _last(self, window_ms: float) -> tuple[int, float]:
        """Return the rows of the last window, and the time since its first look."""
        now_ms, arrived = self._counts[-1]
        time_ms, count = next(c for c in self._counts if now_ms - c[0] <= window_ms)
        return arrived - count, now_ms - time_ms
