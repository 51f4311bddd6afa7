"""One GPU's MPS daemon, kept: started, looked at, and started again when it fails."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import structlog

from scheduler.agent.confined import FAILED
from scheduler.agent.control import FAULT, Control, ControlError, Places
from scheduler.agent.daemon_state import DaemonState, Phase
from scheduler.agent.settings import AgentSettings
from scheduler.cluster.backoff import Backoff

log = structlog.get_logger(__name__)

_START_S = 20.0  # a daemon answers after some milliseconds, or never
_START_PAUSE_S = 0.1
_TERM_S = 2.0  # what SIGTERM may take where `quit` did not work
_STEADY_S = 60.0  # a daemon that has been well for so long starts the next back-off anew
_RETRY_START_S = 1.0


class _FailedError(Exception):
    """The daemon is no good any more; the message says why."""


class Daemon:
    """Keeps one GPU's daemon while `run` runs.

    Attributes:
        state: how it is.

    Args:
        uuid: the GPU.
        places: the daemon's folders.
        settings: how it is started and how patient to be.
        changed: called when `state` has changed.
    """

    def __init__(
        self,
        uuid: str,
        places: Places,
        settings: AgentSettings,
        *,
        changed: Callable[[], None],
        random: Callable[[], float] | None = None,
    ) -> None:
        self.state = DaemonState("starting")
        self._uuid = uuid
        self._places = places
        self._settings = settings
        self._changed = changed
        self._backoff = Backoff(random=random, start_s=_RETRY_START_S)
        self._control = Control(
            settings.mps_control, uuid, places, timeout_s=settings.mps_ask_timeout_s
        )
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keep the daemon until cancelled, then end it with its clients."""
        try:
            while True:
                trouble = await self._live()
                self._set("ill", trouble, restarts=self.state.restarts + 1)
                await self._end()
                await asyncio.sleep(self._backoff.next_s())
                self._set("starting", trouble)
        finally:
            await self._end()
            self._set("stopped", "`esg mps` was stopped, and its MPS daemon with it")

    async def _live(self) -> str:
        """Start the daemon and look at it until it fails; why it did."""
        try:
            await self._clear()
            self._process = await self._control.start(
                multiuser=self._settings.mps_multiuser, own_shm=self._settings.mps_own_shm
            )
            await self._answered(self._process)
            self._set("ready")
            began = time.monotonic()
            try:
                await self._look_after(self._process)
            finally:
                if time.monotonic() - began > _STEADY_S:
                    self._backoff.reset()
        except _FailedError as error:
            return str(error)
        except OSError as error:
            return f"its MPS daemon cannot be started: {error}"

    async def _clear(self) -> None:
        """Make room: no daemon, and nothing that one has left behind."""
        self._places.make()
        if any(self._places.pipe.iterdir()):
            with suppress(ControlError):
                await self._control.quit(self._settings.mps_stop_s)
                log.warning("another MPS daemon was there, and was ended", gpu=self._uuid)
            self._places.clean_pipe()

    async def _answered(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the first answer."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                await self._control.servers()
            except ControlError as error:
                trouble = str(error)
            else:
                return
            if await _ends(process, within_s=_START_PAUSE_S):
                raise _FailedError(f"{_ended(process)}: {trouble}")
            if time.monotonic() > deadline:
                raise _FailedError(trouble)

    async def _look_after(self, process: asyncio.subprocess.Process) -> NoReturn:
        """Look at the daemon now and again; ends by `_FailedError` alone."""
        ill_since: float | None = None
        while not await _ends(process, within_s=self._settings.mps_check_every_s):
            trouble = await self._look()
            if not trouble:
                ill_since = None
                self._set("ready")
                continue
            self._set("ill", trouble)
            ill_since = time.monotonic() if ill_since is None else ill_since
            if time.monotonic() - ill_since >= self._settings.mps_fault_grace_s:
                raise _FailedError(trouble)
        raise _FailedError(_ended(process))

    async def _look(self) -> str:
        """What is wrong with it now."""
        try:
            for server in await self._control.servers():
                if await self._control.status(server) == FAULT:
                    return (
                        f"its MPS server {server} is in state FAULT: a client has failed, and "
                        "all of them must end"
                    )
        except ControlError as error:
            return str(error)
        return ""

    async def _end(self) -> None:
        """End the daemon: asked, then told, then made to; and what it has started with it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ControlError):
                await self._control.quit(self._settings.mps_stop_s)
            if not await _ends(process, within_s=_TERM_S):
                with suppress(ProcessLookupError):
                    process.terminate()
                await _ends(process, within_s=_TERM_S)
        # The servers are of its session; a server without a daemon would hold on to the GPU.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    def _set(self, phase: Phase, trouble: str = "", *, restarts: int | None = None) -> None:
        state = DaemonState(phase, trouble, self.state.restarts if restarts is None else restarts)
        if state == self.state:
            return
        if phase == "ill":
            log.error("an MPS daemon is ill", gpu=self._uuid, problem=trouble)
        elif phase == "ready":
            log.info("an MPS daemon answers", gpu=self._uuid)
        self.state = state
        self._changed()


async def _ends(process: asyncio.subprocess.Process, *, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _ended(process: asyncio.subprocess.Process) -> str:
    status = process.returncode or 0
    if status == FAILED:
        return "its MPS daemon could not be started, the log of `esg mps` says why"
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"its MPS daemon has ended with {how}"
