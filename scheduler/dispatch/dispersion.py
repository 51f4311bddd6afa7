"""Dispersion of a function's arrivals, in constant memory."""

from math import inf

COUNT_MS = 1_000.0  # of one count
WINDOW = 60  # counts
RATIO_MIN, RATIO_MAX = 0.25, 4.0


class Dispersion:
    """Variance of the number of rows that arrive in a second over its mean; 1: a Poisson process.

    Half of the mean squared difference of successive counts is the variance, without that of a rate
    that rises or falls slowly. The weights of the counts fall exponentially by `WINDOW`; before the
    first one there were as many of a Poisson process.
    """

    __slots__ = ("_arrived", "_count", "_mean", "_since_ms", "_variance")

    def __init__(self) -> None:
        self._variance = self._mean = 0.0
        self._arrived, self._since_ms = 0, -inf
        self._count: int | None = None

    def record(self, arrived: int, now_ms: float) -> None:
        """Record a look; ``arrived`` is the number of rows up to now."""
        length_ms = now_ms - self._since_ms
        if length_ms < COUNT_MS:
            return
        count, previous = arrived - self._arrived, self._count
        self._arrived, self._since_ms = arrived, now_ms
        if count < 0 or length_ms >= 2.0 * COUNT_MS:  # of another length, or of other workflows
            self._count = None
            return
        self._count = count
        if previous is not None:
            weight = 1.0 - 1.0 / WINDOW
            self._variance = weight * self._variance + (count - previous) ** 2 / 2.0
            self._mean = weight * self._mean + (count + previous) / 2.0
        elif not self._mean:
            self._variance = self._mean = float(WINDOW * count)

    @property
    def ratio(self) -> float:
        """Variance over mean, within limits."""
        ratio = self._variance / self._mean if self._mean else 1.0
        return min(max(ratio, RATIO_MIN), RATIO_MAX)
