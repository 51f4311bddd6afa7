"""The thread in which NVML is called, and nothing else.

A call of NVML may block for as long as a sick GPU or a driver under exchange likes. Nothing waits
for the thread: who is told keeps the time, and at the end it is left behind if it hangs.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from scheduler.agent.compute_modes import ComputeModes
from scheduler.agent.nvml import NvmlError, Session, opened
from scheduler.agent.reading import Reading, Xid
from scheduler.cluster.backoff import Backoff

_SLICE_S = 0.25  # the longest wait for an event: what an end of the process may have to wait for
_GATHER_S = 0.1  # errors come in swarms; those within this time are one reading's
# NVML finds a GPU that was reset only when it is initialised again; that takes seconds on a machine
# without persistence mode, and no GPU is read meanwhile. So while one is lost it is done seldom.
_REOPEN_START_S, _REOPEN_CAP_S = 10.0, 600.0
# Between two tries at a driver that is not there; below the time after which silence is a trouble.
_RETRY_CAP_S = 4.0


class _Reader:
    def __init__(
        self,
        tell: Callable[[Reading, int | None], None],
        *,
        every_s: float,
        modes: ComputeModes,
        listen: bool,
    ) -> None:
        self.stop = threading.Event()
        self._tell = tell
        self._every_s = every_s
        self._modes = modes
        self._listen = listen
        self._backoff = Backoff(cap_s=_RETRY_CAP_S)
        self._reopening = Backoff(start_s=_REOPEN_START_S, cap_s=_REOPEN_CAP_S)

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with opened(self._modes, listen=self._listen) as session:
                    self._follow(session)
            except NvmlError as error:
                self._tell(Reading(problem=str(error), outdated=error.outdated), None)
            self.stop.wait(self._backoff.next_s())

    def _follow(self, session: Session) -> None:
        """Read until stopped, or until NVML must be initialised again.

        Raises:
            NvmlError: nothing can be read any more.
        """
        reopen_at: float | None = None
        listens_to = set(session.uuids.values())
        xids: tuple[Xid, ...] = ()
        while not self.stop.is_set():
            begun = self._modes.begin()
            reading = session.read(xids)
            self._tell(reading, begun)
            if not {device.uuid for device in reading.devices} <= listens_to:
                return
            if not reading.unreadable and not (self._listen and session.deaf):
                reopen_at = None
                self._backoff.reset()
                self._reopening.reset()
            elif reopen_at is None:
                reopen_at = time.monotonic() + self._reopening.next_s()
            elif time.monotonic() > reopen_at:
                return
            xids = self._wait(session)

    def _wait(self, session: Session) -> tuple[Xid, ...]:
        """Wait for the next reading's time, a mode to set, or errors; those that came."""
        xids: list[Xid] = []
        deadline = time.monotonic() + self._every_s
        while not self.stop.is_set() and (left_s := deadline - time.monotonic()) > 0:
            if self._modes.changed.is_set():
                break
            if session.deaf:
                self._modes.changed.wait(min(left_s, _SLICE_S))
            elif (xid := session.wait(min(left_s, _SLICE_S))) is not None:
                if not xids:
                    deadline = min(deadline, time.monotonic() + _GATHER_S)
                xids.append(xid)
        return tuple(xids)


@contextmanager
def reading_gpus(
    tell: Callable[[Reading], None],
    *,
    every_s: float,
    modes: ComputeModes | None = None,
    listen: bool = True,
) -> Iterator[None]:
    """In the block, and never after it, readings are told to ``tell`` on the running event loop.

    Args:
        tell: called with each reading.
        every_s: seconds between two; critical errors are told at once.
        modes: the compute modes to keep the GPUs in; one that is new is set at once.
        listen: hear of critical errors.
    """
    loop = asyncio.get_running_loop()
    kept = modes or ComputeModes()

    def deliver(reading: Reading, begun: int | None) -> None:
        if reader.stop.is_set():
            return
        tell(reading)
        if begun is not None:
            kept.tried(begun)

    def pass_on(reading: Reading, begun: int | None) -> None:
        with suppress(RuntimeError):  # the loop has ended before us
            loop.call_soon_threadsafe(deliver, reading, begun)

    reader = _Reader(pass_on, every_s=every_s, modes=kept, listen=listen)
    thread = threading.Thread(target=reader.run, name="nvml", daemon=True)
    thread.start()
    try:
        yield
    finally:
        reader.stop.set()
        thread.join(2 * _SLICE_S)
