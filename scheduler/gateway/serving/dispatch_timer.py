"""Timer of the event loop that wakes the dispatcher at the time that it names."""

import asyncio
import math

from scheduler.dispatch.dispatcher import Dispatcher


class DispatchTimer:
    """Wakes a dispatcher; whoever reports to the dispatcher sets the timer afterwards.

    Args:
        dispatcher: dispatcher that names the time.
        loop: event loop whose clock is the dispatcher's.
    """

    def __init__(self, dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop) -> None:
        self._dispatcher = dispatcher
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self._wake_ms = math.inf

    def now_ms(self) -> float:
        """Return the time of the event loop's clock."""
        return 1000 * self._loop.time()

    def set(self) -> None:
        """Wake the dispatcher when it needs it."""
        wake_ms = self._dispatcher.wake_at_ms
        if wake_ms == self._wake_ms:
            return
        self.cancel()
        self._wake_ms = wake_ms
        if wake_ms < math.inf:
            self._handle = self._loop.call_at(wake_ms / 1000, self._wake)

    def cancel(self) -> None:
        """Wake it no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wake(self) -> None:
        now_ms = max(self.now_ms(), self._wake_ms)  # seconds times 1000 may round below it
        self._handle, self._wake_ms = None, math.inf
        self._dispatcher.wake(now_ms)
        self.set()
