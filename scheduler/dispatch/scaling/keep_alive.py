"""Keep-alive of a function's last pod, learned from the times between requests.

After a request the last pod stays for ``keep_ms``. A rule may also plan its return: a start that is
ready ``return_ms`` after the request, for ``stay_ms``. As in "Serverless in the Wild" (Shahrad et
al., USENIX ATC 2020) each function learns from its own gaps. That takes head and tail of their
histogram, whatever they cost; here the rule is taken that would have cost least so far, where a
request that waits for a start costs as much as a pod that is idle for `MISS_PRICE_MS`.
"""

from math import inf
from typing import NamedTuple

MINUTE_MS = 60_000.0
DEFAULT_MS = 10 * MINUTE_MS  # kept until the gaps are known, and by the paper
MISS_PRICE_MS = DEFAULT_MS  # ten minutes for every function have that price, too
GAPS_MIN = 5  # known gaps
MEMORY_GAPS = 256  # the weight of a gap falls exponentially by so many
KEEPS_MIN = (0.5, 1, 2, 3, 5, 10, 15, 20, 30, 60)
RETURNS_MIN = (4, 9, 14, 19, 29, 59)  # around the usual timers; more often a pod need not start
STAY_MS = 2 * MINUTE_MS


class KeepRule(NamedTuple):
    """Stay, and return, of the last pod after a request.

    Attributes:
        return_ms: time after the request at which it is ready again; inf: it does not return.
        stay_ms: idle time from then on.
    """

    keep_ms: float
    return_ms: float = inf
    stay_ms: float = 0.0

    def idle_and_starts(self, gap_ms: float, start_ms: float) -> tuple[float, bool]:
        """Return the cost of a gap between two requests, and whether the second one has to wait.

        The cost is that of idle time and starts, in ms of a pod.
        """
        if gap_ms <= self.keep_ms:
            return gap_ms, False
        if gap_ms <= self.return_ms - start_ms:
            return self.keep_ms + start_ms, True
        idle_ms = self.keep_ms + min(max(gap_ms - self.return_ms, 0.0), self.stay_ms) + start_ms
        if gap_ms > self.return_ms + self.stay_ms:
            return idle_ms + start_ms, True
        return idle_ms, gap_ms < self.return_ms


RULES = (
    *(KeepRule(MINUTE_MS * minutes) for minutes in KEEPS_MIN),
    *(KeepRule(MINUTE_MS * KEEPS_MIN[0], MINUTE_MS * minutes, STAY_MS) for minutes in RETURNS_MIN),
)


class KeepAlive:
    """Gaps between the requests of one function, and the rule that they would have paid least for.

    Gaps shorter than any rule keeps a pod are alike under all of them, and count in none.

    Attributes:
        rule: rule after the last request.
    """

    __slots__ = ("_arrived", "_gaps", "_last_ms", "_paid_ms", "rule")

    def __init__(self) -> None:
        self._arrived: int | None = None
        self._last_ms = -inf
        self._paid_ms = [0.0] * len(RULES)
        self._gaps = 0
        self.rule = KeepRule(DEFAULT_MS)

    def record(self, arrived: int, start_ms: float, now_ms: float) -> None:
        """Record a look; ``arrived`` is the number of rows up to now."""
        before, self._arrived = self._arrived, arrived
        if before is not None and arrived > before:
            if self._last_ms > -inf:
                self.learn(now_ms - self._last_ms, start_ms)
            self._last_ms = now_ms

    def learn(self, gap_ms: float, start_ms: float) -> None:
        """Learn a gap, and choose the rule."""
        if gap_ms <= RULES[0].keep_ms:
            return
        weight = 1.0 - 1.0 / MEMORY_GAPS
        for i, rule in enumerate(RULES):
            paid_ms, has_waited = rule.idle_and_starts(gap_ms, start_ms)
            self._paid_ms[i] = weight * self._paid_ms[i] + paid_ms + MISS_PRICE_MS * has_waited
        self._gaps += 1
        if self._gaps >= GAPS_MIN:
            self.rule = RULES[min(range(len(RULES)), key=self._paid_ms.__getitem__)]

    def is_due(self, start_ms: float, now_ms: float) -> bool:
        """Return true from one start before the planned return until the end of the stay."""
        return_ms = self.rule.return_ms
        since_ms = now_ms - self._last_ms
        is_past = since_ms > return_ms + self.rule.stay_ms
        return return_ms < inf and return_ms - start_ms <= since_ms and not is_past
