"""One GPU's MPS daemon: started, checked, and restarted when it fails."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import structlog

from scheduler.agent.gpus.compute_modes import ComputeMode
from scheduler.agent.mps.clients import MpsClients
from scheduler.agent.mps.control import ACTIVE, FAULT, Control, ControlError, DaemonFolders
from scheduler.agent.mps.daemon_state import DaemonState, Phase
from scheduler.agent.mps.mount_namespace import FAILED
from scheduler.agent.mps.shared_memory import remove_unused
from scheduler.agent.mps.shm_mount import mount_shm
from scheduler.agent.pods.grants import GpuGrants, MpsLimits
from scheduler.agent.settings import AgentSettings
from scheduler.cluster.backoff import Backoff

log = structlog.get_logger(__name__)

_START_S = 20.0  # a daemon answers within milliseconds, a server within seconds, or never
_START_PAUSE_S = 0.1
_CLEAR_S = 10.0  # reading all processes takes less, unless one of them cannot be read
_TERM_S = 2.0  # time limit of SIGTERM if `quit` failed
_STEADY_S = 60.0  # a daemon that was ready for so long resets the back-off
_RETRY_START_S = 1.0


class _FailedError(Exception):
    """The daemon must be restarted; the message says why."""


class Daemon:
    """Keeps one GPU's daemon running while `run` runs.

    Attributes:
        clients: processes that use it.

    Args:
        settings: settings with its folders, its options and its time limits.
        changed: function that is called when `state` changes.
        set_mode: function that sets the GPU's compute mode, if possible.
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
        self.clients = MpsClients()
        self._uuid = uuid
        self._folders = DaemonFolders(Path(settings.mps_root) / uuid)
        self._settings = settings
        self._changed = changed
        self._set_mode = set_mode
        self._backoff = Backoff(random=random, start_s=_RETRY_START_S)
        self._control = Control(
            settings.mps_control, uuid, self._folders, timeout_s=settings.mps_ask_timeout_s
        )
        self._process: asyncio.subprocess.Process | None = None
        self._server_requested = False  # since the last time that one was ACTIVE
        self._grants = GpuGrants()
        self._limited: tuple[MpsLimits | None, frozenset[int]] = (None, frozenset())
        self._servers: frozenset[int] = frozenset()
        self._limit_problem = ""
        self._wake = asyncio.Event()  # new grants, or the daemon's end

    @property
    def limits(self) -> MpsLimits | None:
        """Limits of new clients that the daemon has confirmed."""
        return self._limited[0]

    def set_grants(self, grants: GpuGrants) -> None:
        """Set the granted pods of the GPU: their clients are limited, and ended if need be."""
        limits = grants.limits or self._grants.limits  # without pods nothing has to change
        if limits != self._grants.limits:
            self._wake.set()
        self._grants = replace(grants, limits=limits)

    async def run(self) -> None:
        """Keep the daemon running until cancelled, then end it and its clients."""
        try:
            while True:
                trouble = await self._run_once()
                self._set("unhealthy", trouble, restarts=self.state.restarts + 1)
                await self._end()
                await asyncio.sleep(self._backoff.next_s())
                self._set("starting", trouble)
        finally:
            await self._end()
            if self._grants.is_complete and not self._grants.pods:
                await self._set_mode(
                    ComputeMode.DEFAULT
                )  # no process of ours starts again without limits
                await self._unmount()
            self._set("stopped", "`esg mps` was stopped, and its MPS daemon with it")

    async def _run_once(self) -> str:
        """Start the daemon and check it until it fails; return the reason."""
        try:
            await self._set_mode(ComputeMode.PROHIBITED)
            await self._clear()
            self._process = await self._control.start(
                multiuser=self._settings.mps_multiuser, own_shm=self._settings.mps_own_shm
            )
            await self._wait_until_ok(self._process, self._no_answer)
            await self._set_mode(ComputeMode.EXCLUSIVE_PROCESS)  # the server is its one process
            await self._start_server()
            await self._wait_until_ok(self._process, self._check)
            await self._limit()
            self._set("ready")
            start_s = time.monotonic()
            try:
                await self._monitor(self._process)
            finally:
                if time.monotonic() - start_s > _STEADY_S:
                    self._backoff.reset()
        except _FailedError as error:
            return str(error)
        except OSError as error:
            return f"cannot start the MPS daemon: {error}"

    async def _clear(self) -> None:
        """Remove any previous daemon and its leftovers."""
        self._folders.create()
        if self._settings.mps_shm_mib:
            await mount_shm(self._folders.shm, self._settings.mps_shm_mib)
        if any(self._folders.pipe.iterdir()):
            with suppress(ControlError):
                await self._control.quit(self._settings.mps_stop_s)
                log.warning("previous MPS daemon ended", gpu=self._uuid)
            self._folders.clean_pipe()
        try:
            async with asyncio.timeout(_CLEAR_S):
                removed = await asyncio.to_thread(remove_unused, self._folders.shm)
        except OSError as error:  # a TimeoutError is one
            problem = str(error) or f"it takes longer than {_CLEAR_S:g} s"
            log.warning("unused shm files cannot be removed", gpu=self._uuid, problem=problem)
        else:
            if removed:
                log.info("unused shm files removed", gpu=self._uuid, files=removed)

    async def _unmount(self) -> None:
        if self._settings.mps_shm_mib:
            try:
                await mount_shm(self._folders.shm, 0)
            except OSError as error:
                log.warning("tmpfs stays mounted", gpu=self._uuid, problem=str(error))

    async def _wait_until_ok(
        self,
        process: asyncio.subprocess.Process,
        check: Callable[[], Awaitable[str]],
    ) -> None:
        """Wait until the check finds no trouble."""
        deadline_s = time.monotonic() + _START_S
        while trouble := await check():
            if await _ends(process, within_s=_START_PAUSE_S):
                raise _FailedError(f"{_exit_reason(process)}: {trouble}")
            if time.monotonic() > deadline_s:
                raise _FailedError(trouble)

    async def _monitor(self, process: asyncio.subprocess.Process) -> NoReturn:
        """Check the daemon periodically; ends only by `_FailedError`."""
        # One task for all checks: asyncio keeps every waiter until the process ends.
        ending = asyncio.ensure_future(process.wait())
        ending.add_done_callback(lambda _: self._wake.set())
        try:
            await self._check_until(ending)
        finally:
            ending.cancel()
        raise _FailedError(_exit_reason(process))

    async def _check_until(self, ending: "asyncio.Future[int]") -> None:
        unhealthy_since_s: float | None = None
        while not await self._ends_or_wakes(ending):
            await self._limit()
            trouble = await self._check()
            self._end_stale_clients()
            if not trouble:
                unhealthy_since_s = None
                self._set("ready")
                continue
            self._set("unhealthy", trouble)
            now_s = time.monotonic()
            unhealthy_since_s = now_s if unhealthy_since_s is None else unhealthy_since_s
            if now_s - unhealthy_since_s >= self._settings.mps_fault_grace_s:
                raise _FailedError(trouble)

    async def _no_answer(self) -> str:
        """Return why the daemon does not answer; empty if it does."""
        try:
            await self._control.servers()
        except ControlError as error:
            return str(error)
        return ""

    async def _check(self) -> str:
        """Return the daemon's trouble; empty if it works.

        For a moment it has no server when a client of another user connects: it ends an idle server
        before it starts the next. So a missing server is a trouble only after one was requested.
        """
        on_gpu = self.clients.on_gpu
        try:
            statuses = await self._control.statuses()
        except ControlError as error:
            return str(error)
        await self._observe_clients(statuses, on_gpu)
        for server, status in statuses.items():
            if status == FAULT:
                return (
                    f"MPS server {server} is in state FAULT: a client failed; all clients of the "
                    "GPU must end"
                )
        if ACTIVE in statuses.values():
            self._server_requested = False
            return ""
        if not self._server_requested:
            await self._start_server()
            return ""
        servers = ", ".join(f"{server} is {status}" for server, status in statuses.items())
        return f"no MPS server is ACTIVE: {servers or 'there is none'}; see {self._folders.log}"

    async def _observe_clients(self, statuses: Mapping[int, str], on_gpu: Collection[int]) -> None:
        with suppress(ControlError):  # the next check reports it, if it lasts
            clients = {server: await self._control.clients(server) for server in statuses}
            faulty = [server for server, status in statuses.items() if status == FAULT]
            self.clients.observe(clients, faulty=faulty, on_gpu=on_gpu)
            self._servers = frozenset(statuses)

    def _end_stale_clients(self) -> None:
        if pids := self.clients.end_stale(self._grants.pods):
            log.warning("clients of an ended MPS server ended", gpu=self._uuid, pids=pids)

    async def _limit(self) -> None:
        """Apply the limits, if they or the servers have changed since the last time."""
        limits, servers = self._grants.limits, self._servers
        if limits is None or (limits, servers) == self._limited or not self._settings.mps_limits:
            return
        try:
            await self._control.limit(limits, servers)
        except ControlError as error:
            problem = str(error)
            if problem != self._limit_problem:
                log.warning("clients cannot be limited", gpu=self._uuid, problem=problem)
            self._limit_problem = problem
        else:
            self._limited, self._limit_problem = (limits, servers), ""

    async def _start_server(self) -> None:
        """Request a server; the next check shows the result."""
        self._server_requested = True
        with suppress(ControlError):
            await self._control.start_server(
                0 if self._settings.mps_multiuser else self._settings.mps_uid
            )

    async def _end(self) -> None:
        """End the daemon and its servers: by command, then SIGTERM, then SIGKILL.

        If cancelled, call it again: only its completion guarantees that the daemon has ended.
        """
        await self._set_mode(ComputeMode.PROHIBITED)  # restarted clients must not get the GPU
        process = self._process
        if process is None:
            return
        await self._quit(process)
        self._process = None
        self._limited, self._servers = (None, frozenset()), frozenset()
        self.clients.lose_all()
        self._end_stale_clients()

    async def _quit(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            with suppress(ControlError):
                await self._control.quit(self._settings.mps_stop_s)
            if not await _ends(process, within_s=_TERM_S):
                with suppress(ProcessLookupError):
                    process.terminate()
                await _ends(process, within_s=_TERM_S)
        # The servers are in its session; a server without a daemon would keep the GPU busy.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def _ends_or_wakes(self, ending: "asyncio.Future[int]") -> bool:
        """Wait for the next check; return true if the daemon has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.mps_check_every_s):
                await self._wake.wait()
        self._wake.clear()
        return ending.done()

    def _set(self, phase: Phase, trouble: str = "", *, restarts: int | None = None) -> None:
        state = DaemonState(phase, trouble, self.state.restarts if restarts is None else restarts)
        if state == self.state:
            return
        if phase == "unhealthy":
            log.error("MPS daemon is unhealthy", gpu=self._uuid, problem=trouble)
        elif phase == "ready":
            log.info("MPS daemon is ready", gpu=self._uuid)
        self.state = state
        self._changed()


async def _ends(process: asyncio.subprocess.Process, *, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _exit_reason(process: asyncio.subprocess.Process) -> str:
    status = process.returncode or 0
    if status == FAILED:
        return "MPS daemon cannot be started; see the log of `esg mps`"
    cause = f"signal {-status}" if status < 0 else f"status {status}"
    return f"MPS daemon has ended with {cause}"
