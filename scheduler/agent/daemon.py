"""One GPU's MPS daemon, kept: started, looked at, and started again when it fails."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import structlog

from scheduler.agent.compute_modes import ComputeMode
from scheduler.agent.control import ACTIVE, FAULT, Control, ControlError, Places
from scheduler.agent.daemon_state import DaemonState, Phase
from scheduler.agent.mount_namespace import FAILED
from scheduler.agent.settings import AgentSettings
from scheduler.agent.shared_memory import remove_unused
from scheduler.cluster.backoff import Backoff

log = structlog.get_logger(__name__)

_START_S = 20.0  # a daemon answers after some milliseconds, a server after seconds, or never
_START_PAUSE_S = 0.1
_CLEAR_S = 10.0  # reading all processes takes less, unless one of them cannot be read now
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
        settings: where its folders are, how it is started, and how patient to be.
        changed: called when `state` has changed.
        set_mode: puts the GPU into a compute mode, as far as that can be done.
    """

    def __init__(
        self,
        uuid: str,
        settings: AgentSettings,
        *,
        changed: Callable[[], None],
        set_mode: Callable[[ComputeMode], Awaitable[None]],
        random: Callable[[], float] | None = None,
    ) -> None:
        self.state = DaemonState("starting")
        self._uuid = uuid
        self._places = Places(Path(settings.mps_root) / uuid)
        self._settings = settings
        self._changed = changed
        self._set_mode = set_mode
        self._backoff = Backoff(random=random, start_s=_RETRY_START_S)
        self._control = Control(
            settings.mps_control, uuid, self._places, timeout_s=settings.mps_ask_timeout_s
        )
        self._process: asyncio.subprocess.Process | None = None
        self._asked = False  # for a server, since one was seen ACTIVE

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
            await self._set_mode(ComputeMode.PROHIBITED)
            await self._clear()
            self._process = await self._control.start(
                multiuser=self._settings.mps_multiuser, own_shm=self._settings.mps_own_shm
            )
            await self._started(self._process, self._unanswered)
            await self._set_mode(ComputeMode.EXCLUSIVE_PROCESS)  # the server is its one process
            await self._start_server()
            await self._started(self._process, self._look)
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
        try:
            async with asyncio.timeout(_CLEAR_S):
                removed = await asyncio.to_thread(remove_unused, self._places.shm)
        except OSError as error:  # a TimeoutError is one
            problem = str(error) or f"it takes longer than {_CLEAR_S:g} s"
            log.warning("what lies in shm could not be removed", gpu=self._uuid, problem=problem)
        else:
            if removed:
                log.info("files that nobody uses were removed", gpu=self._uuid, files=removed)

    async def _started(
        self,
        process: asyncio.subprocess.Process,
        look: Callable[[], Awaitable[str]],
    ) -> None:
        """Wait until nothing is wrong with it any more."""
        deadline = time.monotonic() + _START_S
        while trouble := await look():
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

    async def _unanswered(self) -> str:
        """Why it cannot be asked."""
        try:
            await self._control.servers()
        except ControlError as error:
            return str(error)
        return ""

    async def _look(self) -> str:
        """What is wrong with it now.

        It has no server for a moment when a client of another user comes: it ends an idle one for
        the sake of the next. So that alone is no trouble before a server was asked for in vain.
        """
        try:
            statuses = await self._control.statuses()
        except ControlError as error:
            return str(error)
        for server, status in statuses.items():
            if status == FAULT:
                return (
                    f"its MPS server {server} is in state FAULT: a client has failed, and "
                    "all of them must end"
                )
        if ACTIVE in statuses.values():
            self._asked = False
            return ""
        if not self._asked:
            await self._start_server()
            return ""
        told = ", ".join(f"{server} is {status}" for server, status in statuses.items())
        return (
            f"it has no MPS server that is ACTIVE ({told or 'it has none at all'}): "
            f"{self._places.log} says why"
        )

    async def _start_server(self) -> None:
        """Ask for a server; whether there is one, the next look says."""
        self._asked = True
        with suppress(ControlError):
            await self._control.start_server(
                0 if self._settings.mps_multiuser else self._settings.mps_uid
            )

    async def _end(self) -> None:
        """End the daemon: asked, then told, then made to; and what it has started with it.

        Cut short, it must be called again: only then the daemon is known to be gone.
        """
        await self._set_mode(ComputeMode.PROHIBITED)  # clients that start again shall not have it
        process = self._process
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
        self._process = None

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
