"""Hit rate of a workflow's recent requests, in constant memory."""

WINDOW = 400.0  # requests


class HitRate:
    """Mean over all requests, with weights that fall exponentially by `WINDOW`.

    It begins at the objective: the first requests decide. Four misses in a row bring it from 1
    below an objective of 0.99, and twenty below 0.95.
    """

    __slots__ = ("_hit_ratio",)

    def __init__(self, objective_ratio: float) -> None:
        self._hit_ratio = objective_ratio

    def record(self, *, is_hit: bool) -> None:
        """Record the end of a request."""
        self._hit_ratio += (float(is_hit) - self._hit_ratio) / WINDOW

    def shortfall_ratio(self, objective_ratio: float, late: int) -> float:
        """Return the misses above those that the objective allows, as a ratio of these.

        Args:
            objective_ratio: Ratio of the requests that must be in time.
            late: Requests that wait and will miss their deadline; they count as misses.

        Returns:
            0 at the objective, 1 at twice as many misses as it allows, negative above it.
        """
        hit_ratio: float = self._hit_ratio * (1.0 - 1.0 / WINDOW) ** late
        return (objective_ratio - hit_ratio) / (1.0 - objective_ratio)
