"""Hit rate of a workflow's requests against its objective, in constant memory."""

from math import inf, log, sqrt

WINDOW = 400.0  # requests
EFFECT_MS = 30_000.0  # from a change of the reserve until the requests show it
FADING_MS = 3_600_000.0  # in which a reserve falls that nothing has shown to be needed
MISSES_RATIO = 1.25  # misses over the allowed ones: from here on there are too many
GROWTH_ODDS = 5.0  # that there are too many
FALL_ODDS = 100.0  # that there are not: a reserve that proves too small is late for many
RESERVE_FACTOR = 1.5  # of the whole reserve, for each change
RESERVE_MAX_RATIO = 4.0


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


class FurtherReserve:
    """Reserve of pods beyond the staffing's, by the requests since its last change.

    The staffing expects random arrivals and equal run times, and some loads need more. A sequential
    probability ratio test (Wald, "Sequential tests of statistical hypotheses", 1945) decides
    between as many misses as the objective allows and `MISSES_RATIO` times as many.

    Attributes:
        ratio: reserve to add, as a ratio of the staffing's.
    """

    __slots__ = ("_changed_ms", "_log_odds", "_seen_log_odds", "ratio")

    def __init__(self) -> None:
        self.ratio = 0.0
        self._changed_ms = -inf
        self._log_odds = 0.0  # for too many misses, by the requests that count
        self._seen_log_odds = 0.0  # by those since the last look

    def record(self, objective_ratio: float, *, is_hit: bool) -> None:
        """Record a request that was in time, or cannot be in time any more."""
        self._seen_log_odds -= (MISSES_RATIO - 1.0) * (1.0 - objective_ratio)
        if not is_hit:
            self._seen_log_odds += log(MISSES_RATIO)

    def look(self, now_ms: float, *, has_pods: bool) -> None:
        """Change the reserve where the test has decided; call it every second or so.

        Requests count while the pods of the last change are there: others say nothing about it.

        Args:
            now_ms: the clock.
            has_pods: true if the functions have the pods that they need.
        """
        seen, self._seen_log_odds = self._seen_log_odds, 0.0
        if self._changed_ms == -inf:
            self._changed_ms = now_ms
        since_ms = now_ms - self._changed_ms
        if not has_pods or since_ms < EFFECT_MS:
            return
        self._log_odds += seen
        reserve = 1.0 + self.ratio
        if self._log_odds >= log(GROWTH_ODDS):
            reserve *= RESERVE_FACTOR
        elif self._log_odds <= -log(FALL_ODDS) or self._fades(since_ms):
            reserve /= RESERVE_FACTOR
        else:
            return
        ratio = min(max(reserve - 1.0, 0.0), RESERVE_MAX_RATIO)
        if ratio != self.ratio:
            self._changed_ms = now_ms
        self.ratio, self._log_odds = ratio, 0.0

    def _fades(self, since_ms: float) -> bool:
        """Return true where requests are too few for the test, and none calls for the reserve."""
        return self.ratio > 0.0 and self._log_odds < 0.0 and since_ms >= FADING_MS
