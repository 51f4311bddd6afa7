"""Pauses after starts that failed: of pods by share, and of the slices of a pool."""

from math import inf

from scheduler.dispatch.pods import FunctionKey, PodStart, Share

REFUSED_MS = 60_000.0  # until a share, or a size of slices, that found no room is tried again


class StartBackoff:
    """Failed starts of one share; the pause after each is twice as long as the one before.

    Attributes:
        retry_ms: time of the next attempt.
        refused_until_ms: time until which another share is chosen.

    Args:
        first_ms: first pause.
        last_ms: longest pause.
    """

    def __init__(self, first_ms: float, last_ms: float) -> None:
        self.retry_ms = self.refused_until_ms = -inf
        self._pause_ms, self._last_ms = first_ms, last_ms

    def failed(self, now_ms: float) -> None:
        """Record a failure; those within a pause are of pods that started before it."""
        if now_ms >= self.retry_ms:
            self.retry_ms = now_ms + self._pause_ms
            self._pause_ms = min(2.0 * self._pause_ms, self._last_ms)


class StartBackoffs:
    """Failed starts of pods; those of each share of a function count alone.

    Args:
        pause_ms: pause after a start that failed: the first one, and the longest.
    """

    def __init__(self, pause_ms: tuple[float, float]) -> None:
        self._pause_ms = pause_ms
        self._backoffs: dict[PodStart, StartBackoff] = {}

    def failed(self, start: PodStart, now_ms: float, *, refused: bool) -> None:
        """Record a failure; ``refused``: another share is chosen for a while."""
        backoff = self._backoffs.get(start)
        if backoff is None:
            backoff = self._backoffs[start] = StartBackoff(*self._pause_ms)
        backoff.failed(now_ms)
        if refused:
            backoff.refused_until_ms = now_ms + REFUSED_MS

    def proved(self, start: PodStart) -> None:
        """Record that a pod works, so that earlier failures of its share count no more.

        Only the owner knows: a pod that starts counts as one, and may still fail.
        """
        self._backoffs.pop(start, None)

    def forget(self, function: FunctionKey) -> None:
        """Forget the failures of a function whose server was removed or replaced."""
        for start in [start for start in self._backoffs if start.function == function]:
            del self._backoffs[start]

    def paused_until_ms(self, function: FunctionKey, share: Share | None = None) -> float:
        """Return the end of the pause of a share, or the last one of all shares; -inf: none."""
        ends_ms = (
            backoff.retry_ms
            for start, backoff in self._backoffs.items()
            if start.function == function and share in {None, start.share}
        )
        return max(ends_ms, default=-inf)

    def is_paused(self, start: PodStart, now_ms: float) -> bool:
        """Return true if the next attempt of a start has to wait."""
        backoff = self._backoffs.get(start)
        return backoff is not None and now_ms < backoff.retry_ms

    def refused(self, namespace: str, now_ms: float) -> list[PodStart]:
        """Return the starts of a namespace for whose functions other shares are chosen."""
        return [
            start
            for start, backoff in self._backoffs.items()
            if start.function[0] == namespace and now_ms < backoff.refused_until_ms
        ]
