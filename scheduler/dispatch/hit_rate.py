"""Hit rate of a workflow's recent requests, in constant memory."""

from math import sqrt

WINDOW = 400.0  # requests


class HitRate:
    """Mean over all requests, with weights that fall exponentially by `WINDOW`.

    The aim is the objective plus one standard error of this mean: a rate that is held at the
    objective itself is below it half of the time. It begins there, so the first requests decide.
    """

    __slots__ = ("_hit_ratio",)

    def __init__(self, objective_ratio: float) -> None:
        self._hit_ratio = _aim_ratio(objective_ratio)

    def record(self, *, is_hit: bool) -> None:
        """Record a request that was in time, or cannot be in time any more."""
        self._hit_ratio += (float(is_hit) - self._hit_ratio) / WINDOW

    def shortfall_ratio(self, objective_ratio: float) -> float:
        """Return the misses above those of the aim, as a ratio of those that the objective allows.

        It is 0 at the aim, 1 at as many more misses as the objective allows, and negative above it.
        """
        return (_aim_ratio(objective_ratio) - self._hit_ratio) / (1.0 - objective_ratio)


def _aim_ratio(objective_ratio: float) -> float:
    variance: float = objective_ratio * (1.0 - objective_ratio) / (2.0 * WINDOW)
    return objective_ratio + sqrt(variance)
