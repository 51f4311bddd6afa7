"""The only thread that calls NVML.

A call of NVML may block as long as a GPU is broken or its driver is being exchanged. Nothing waits
for the thread: its consumers watch the time, and a hanging thread is abandoned at the end.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from scheduler.agent.gpus.compute_modes import ComputeModes
from scheduler.agent.gpus.nvml import NvmlError, NvmlSession, open_nvml
from scheduler.agent.gpus.reading import Reading, Xid
from scheduler.cluster.backoff import Backoff

_SLICE_S = 0.25  # the longest wait for an event, and so the longest delay of a stop
_GATHER_S = 0.1  # errors come in bursts; those within this time belong to one reading
# NVML detects the reset of a GPU only after a new initialisation, which takes seconds on a machine
# without persistence mode, without any reading meanwhile. So with a lost GPU it is done rarely.
_REOPEN_START_S, _REOPEN_CAP_S = 10.0, 600.0
# Between two attempts to use a missing driver; below the time-out for an unresponsive NVML.
_RETRY_CAP_S = 4.0


class _ReaderThread:
    def __init__(
        self,
        publish: Callable[[Reading, int | None], None],
        *,
        every_s: float,
        modes: ComputeModes,
        listen: bool,
    ) -> None:
        self.stop = threading.Event()
        self._publish = publish
        self._every_s = every_s
        self._modes = modes
        self._listen = listen
        self._backoff = Backoff(cap_s=_RETRY_CAP_S)
        self._reopen_backoff = Backoff(start_s=_REOPEN_START_S, cap_s=_REOPEN_CAP_S)

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with open_nvml(self._modes, listen=self._listen) as session:
                    self._follow(session)
            except NvmlError as error:
                self._publish(Reading(problem=str(error), outdated=error.outdated), None)
            self.stop.wait(self._backoff.next_s())

    def _follow(self, session: NvmlSession) -> None:
        """Read until stopped, or until NVML must be initialised again.

        Raises:
            NvmlError: NVML can no longer be read.
        """
        reopen_at_s: float | None = None
        known_uuids = set(session.uuids.values())
        xids: tuple[Xid, ...] = ()
        while not self.stop.is_set():
            request = self._modes.begin()
            reading = session.read(xids)
            self._publish(reading, request)
            if not {device.uuid for device in reading.devices} <= known_uuids:
                return
            if not reading.unreadable and not (self._listen and session.is_unsubscribed):
                reopen_at_s = None
                self._backoff.reset()
                self._reopen_backoff.reset()
            elif reopen_at_s is None:
                reopen_at_s = time.monotonic() + self._reopen_backoff.next_s()
            elif time.monotonic() > reopen_at_s:
                return
            xids = self._wait(session)

    def _wait(self, session: NvmlSession) -> tuple[Xid, ...]:
        """Wait for the next reading's time, a mode request, or errors; return the errors."""
        xids: list[Xid] = []
        deadline_s = time.monotonic() + self._every_s
        while not self.stop.is_set() and (remaining_s := deadline_s - time.monotonic()) > 0:
            if self._modes.changed.is_set():
                break
            if session.is_unsubscribed:
                self._modes.changed.wait(min(remaining_s, _SLICE_S))
            elif (xid := session.wait(min(remaining_s, _SLICE_S))) is not None:
                if not xids:
                    deadline_s = min(deadline_s, time.monotonic() + _GATHER_S)
                xids.append(xid)
        return tuple(xids)


@contextmanager
def read_gpus(
    on_reading: Callable[[Reading], None],
    *,
    every_s: float,
    modes: ComputeModes | None = None,
    listen: bool = True,
) -> Iterator[None]:
    """Pass readings to ``on_reading`` on the running event loop, in the block and never after it.

    Args:
        on_reading: function that is called with each reading.
        every_s: seconds between two readings; critical errors are passed on at once.
        modes: compute modes of the GPUs; a new request is applied at once.
        listen: true to receive critical errors.
    """
    loop = asyncio.get_running_loop()
    compute_modes = modes or ComputeModes()

    def deliver(reading: Reading, request: int | None) -> None:
        if thread_body.stop.is_set():
            return
        on_reading(reading)
        if request is not None:
            compute_modes.complete(request)

    def publish(reading: Reading, request: int | None) -> None:
        with suppress(RuntimeError):  # the loop has ended first
            loop.call_soon_threadsafe(deliver, reading, request)

    thread_body = _ReaderThread(publish, every_s=every_s, modes=compute_modes, listen=listen)
    thread = threading.Thread(target=thread_body.run, name="nvml", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread_body.stop.set()
        thread.join(2 * _SLICE_S)
