"""Delays between retries."""

import random as random_module
from collections.abc import Callable


class Backoff:
    """Exponential delays with jitter: between half and the whole of a bound that doubles.

    Args:
        random: source of numbers in [0, 1); by default a generator of its own, to leave the
            process's other random sequences unchanged. With jitter, the many clients of a server
            that restarts do not retry all at once.
        start_s: upper bound of the first delay, in seconds.
        cap_s: maximum of the bound, in seconds.
    """

    def __init__(
        self,
        *,
        random: Callable[[], float] | None = None,
        start_s: float = 0.25,
        cap_s: float = 30.0,
    ) -> None:
        self._random = random or random_module.Random().random  # noqa: S311
        self._start_s = start_s
        self._cap_s = cap_s
        self._bound_s = start_s

    def next_s(self) -> float:
        """Return the next delay, in seconds."""
        delay_s = self._bound_s * (0.5 + 0.5 * self._random())
        self._bound_s = min(self._cap_s, 2 * self._bound_s)
        return delay_s

    def reset(self) -> None:
        """Restart at ``start_s``, after a success."""
        self._bound_s = self._start_s
