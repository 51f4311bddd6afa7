"""One open watch: its lines, and the faults of its connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from scheduler.cluster.errors import ApiTimeoutError, ApiUnreachableError
from workbench.cluster.api_requests import WatchStream

BOOKMARK_S = 60.0
_EXPIRED = {
    "type": "ERROR",
    "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"},
}


class WatchFeed:
    """Lines of one watch.

    Attributes:
        plural: name of the resource in paths.
    """

    def __init__(
        self,
        events: WatchStream,
        bookmark: Callable[[], Any],
        *,
        plural: str,
        duration_s: float,
        silence_s: float,
        latency_s: float,
    ) -> None:
        self.plural = plural
        self._events = events
        self._bookmark = bookmark
        self._loop = asyncio.get_running_loop()
        self._end_s = self._loop.time() + duration_s
        self._silence_s = silence_s
        self._latency_s = latency_s
        self._slow_until_s = 0.0
        self._is_cut = self._is_silent = self._is_expired = False
        self._wait: asyncio.Timeout | None = None

    def cut(self) -> None:
        """Break the connection."""
        self._is_cut = True
        self._interrupt()

    def fall_silent(self) -> None:
        """Deliver nothing any more, on a connection that seems to work."""
        self._is_silent = True
        self._interrupt()

    def expire(self) -> None:
        """Report that the version is too old, and end the watch."""
        self._is_expired = True
        self._interrupt()

    def slow_down(self, seconds: float) -> None:
        """Deliver nothing before that time has passed; then all of it."""
        self._slow_until_s = self._loop.time() + seconds

    def _interrupt(self) -> None:
        if self._wait is not None and not self._wait.expired():
            self._wait.reschedule(self._loop.time())

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines until the watch ends; raises as `Api.stream`."""
        while True:
            bookmark_s = self._loop.time() + BOOKMARK_S
            event = None
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(bookmark_s, self._end_s)) as self._wait:
                    if self._is_cut or self._is_silent or self._is_expired:
                        self._interrupt()
                    event = await self._events.next_event()
            self._wait = None
            # A bookmark is in order with the events: none before it is still to come.
            bookmark = _line(self._bookmark()) if event is None else b""
            await asyncio.sleep(self._latency_s)
            await self._meet_fault()
            if self._is_expired:
                yield _line(_EXPIRED)
                return
            if event is not None:
                yield _line(event)
                for following in self._events.events_so_far():
                    yield _line(following)
            elif self._loop.time() >= self._end_s:
                return
            else:
                yield bookmark

    async def _meet_fault(self) -> None:
        """Delay what follows, or fail."""
        if (late_s := self._slow_until_s - self._loop.time()) > 0:
            await self._sleep(late_s)
        if self._is_silent:
            await self._sleep(self._silence_s)
            raise ApiTimeoutError("silence", sent=True)
        if self._is_cut:
            raise ApiUnreachableError("connection reset", sent=True)

    async def _sleep(self, seconds: float) -> None:
        """Wait; a cut ends it."""
        try:
            async with asyncio.timeout(seconds) as self._wait:
                if self._is_cut:
                    self._interrupt()
                await asyncio.Event().wait()
        except TimeoutError:
            self._wait = None


def _line(event: Any) -> bytes:
    return json.dumps(event).encode()
