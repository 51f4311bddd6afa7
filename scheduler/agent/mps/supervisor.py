"""`esg mps`: supervisor of one MPS daemon for each GPU of the node that MPS can share.

It reads those GPUs from NVML, and also keeps each in the compute mode that its daemon needs
(`compute_modes` says why). When it ends, a GPU without granted pods gets back the mode DEFAULT. One
with granted pods stays PROHIBITED, because their containers start again.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from scheduler.agent.gpus.compute_modes import ComputeMode, ComputeModes
from scheduler.agent.gpus.health import shareable
from scheduler.agent.gpus.reader import read_gpus
from scheduler.agent.gpus.reading import Reading
from scheduler.agent.mps.daemon import Daemon
from scheduler.agent.mps.daemon_state import DaemonState, write_state
from scheduler.agent.pods.grants import read_grants
from scheduler.agent.pods.permits import read_permits
from scheduler.agent.settings import AgentSettings

log = structlog.get_logger(__name__)

# Time between two looks at the granted pods. The process of a new pod needs longer to start, so its
# share is known before it connects.
_GRANTS_S = 0.2
_HEARTBEAT_S = 1.0  # time between writes of the states: their age shows that this process runs


class MpsSupervisorError(Exception):
    """This process cannot run daemons, a new container might; the message says why."""


class MpsSupervisor:
    """All daemons of a node; they run while `run` runs."""

    def __init__(
        self, settings: AgentSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._daemons: dict[str, tuple[Daemon, asyncio.Task[None]]] = {}
        self._memory_mib: dict[str, int] = {}
        self._ending: set[str] = set()
        self._stopping = False
        self._modes = ComputeModes()
        self._mode_troubles: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._reported: dict[tuple[str, str], str] = {}
        self._newest = Reading()
        self._last_success_s = clock()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then end all daemons.

        Raises:
            MpsSupervisorError: only a new container can continue.
        """
        tasks = [asyncio.create_task(c) for c in (self._write_states(), self._follow_grants())]
        with read_gpus(
            self._update, every_s=self._settings.read_every_s, modes=self._modes, listen=False
        ):
            try:
                await self._wait(stop)
            finally:  # while the modes can still be set
                self._stopping = True
                daemons = [task for _, task in self._daemons.values()]
                self._end(list(self._daemons))
                await asyncio.gather(*daemons, return_exceptions=True)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._newest.outdated:
                raise MpsSupervisorError(self._newest.problem)
            silent_s = self._clock() - self._last_success_s
            # A container gets the driver's libraries at its creation, or never.
            if not self._daemons and silent_s > self._settings.nvml_restart_after_s:
                problem = self._newest.problem or "one of its calls hangs"
                raise MpsSupervisorError(f"NVML reports no GPUs for {silent_s:.0f} s: {problem}")
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_S):
                    await stop.wait()

    def _update(self, reading: Reading) -> None:
        """Start and end daemons; GPUs that cannot be read keep theirs."""
        self._newest = reading
        self._report("GPUs cannot be read", reading.problem)
        if reading.problem:
            return
        self._last_success_s = self._clock()
        self._mode_troubles = {
            device.uuid: device.mode_problem for device in reading.devices if device.mode_problem
        }
        if self._stopping:
            return
        shared = {device.uuid: device for device in reading.devices if shareable(device)}
        self._memory_mib |= {uuid: device.memory_mib for uuid, device in shared.items()}
        permitted = self._permitted(set(shared))
        for uuid in permitted - self._daemons.keys():
            self._start(uuid)
        for uuid, (daemon, _) in self._daemons.items():
            if uuid in shared:
                daemon.clients.set_processes(process.pid for process in shared[uuid].processes)
        if not reading.unreadable:
            self._end(self._daemons.keys() - permitted)

    def _permitted(self, uuids: set[str]) -> set[str]:
        """Select the GPUs that the agent has permitted; before its decision, those with daemons."""
        if not (self._settings.mps_permits and self._settings.check_claims):
            return uuids
        permits = read_permits(Path(self._settings.mps_permits))
        return uuids & (self._daemons.keys() if permits is None else permits)

    def _start(self, uuid: str) -> None:
        async def set_mode(mode: ComputeMode) -> None:
            if self._settings.mps_exclusive:
                await self._modes.request(uuid, mode)

        daemon = Daemon(uuid, self._settings, changed=self._wake.set, set_mode=set_mode)
        task = asyncio.create_task(daemon.run())
        self._daemons[uuid] = daemon, task
        task.add_done_callback(lambda task: self._ended(uuid, task))

    def _end(self, uuids: Iterable[str]) -> None:
        """End these daemons, each once: a second cancellation would interrupt the end."""
        for uuid in uuids:
            if uuid not in self._ending:
                self._ending.add(uuid)
                self._daemons[uuid][1].cancel()

    def _ended(self, uuid: str, task: asyncio.Task[None]) -> None:
        """Record the end of a daemon: its GPU is gone, the supervisor stops, or a bug."""
        daemon, _ = self._daemons.pop(uuid)
        self._ending.discard(uuid)
        self._write(uuid, replace(daemon.state, clients=daemon.clients.report()))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("supervision of an MPS daemon failed", gpu=uuid, exc_info=error)

    async def _write_states(self) -> None:
        while True:
            self._wake.clear()
            for uuid, (daemon, _) in self._daemons.items():
                trouble = self._mode_troubles.get(uuid)
                state = daemon.state
                if trouble and not state.trouble:
                    state = DaemonState("unhealthy", trouble, state.restarts)
                self._write(uuid, replace(state, clients=daemon.clients.report()))
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._wake.wait()

    async def _follow_grants(self) -> None:
        if not self._settings.mps_grants:
            return
        path = Path(self._settings.mps_grants)
        while True:
            grants = read_grants(
                path, clock=self._clock, silent_after_s=self._settings.mps_silent_after_s
            )
            # At the end of a pod the agent ends first: then its last words count.
            if grants.is_recent or not self._stopping:
                for uuid, (daemon, _) in self._daemons.items():
                    daemon.set_grants(grants.of(uuid, memory_mib=self._memory_mib[uuid]))
            await asyncio.sleep(_GRANTS_S)

    def _write(self, uuid: str, state: DaemonState) -> None:
        problem = ""
        try:
            write_state(Path(self._settings.mps_root) / uuid, state, clock=self._clock)
        except OSError as error:
            problem = str(error)
        self._report("state of an MPS daemon cannot be written", problem, gpu=uuid)

    def _report(self, event: str, problem: str, *, gpu: str = "all") -> None:
        """Log a problem if it is new; its end is recorded, but not logged."""
        if problem and problem != self._reported.get((event, gpu)):
            log.error(event, problem=problem, gpu=gpu)
        self._reported[event, gpu] = problem
