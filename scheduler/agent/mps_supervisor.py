"""`esg mps`: one MPS daemon for each GPU of the node that can be shared.

Which GPUs those are is read from NVML, which also keeps each in the compute mode that its daemon
wants (`compute_modes` says why). When this ends they stay PROHIBITED, for pods may still start;
``nvidia-smi -c DEFAULT`` gives the GPUs back to everybody.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import structlog

from scheduler.agent.compute_modes import ComputeMode, ComputeModes
from scheduler.agent.daemon import Daemon
from scheduler.agent.daemon_state import DaemonState, write_state
from scheduler.agent.health import shareable
from scheduler.agent.reader import reading_gpus
from scheduler.agent.reading import Reading
from scheduler.agent.settings import AgentSettings

log = structlog.get_logger(__name__)

_BEAT_S = 1.0  # the states are written at least so often: their age says that somebody keeps them


class MpsSupervisorError(Exception):
    """This process can keep no daemons, a new container may; the message says why."""


class MpsSupervisor:
    """All daemons of a node; it works while `run` runs."""

    def __init__(
        self, settings: AgentSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._daemons: dict[str, tuple[Daemon, asyncio.Task[None]]] = {}
        self._ending: set[str] = set()
        self._stopping = False
        self._modes = ComputeModes()
        self._mode_troubles: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._told: dict[tuple[str, str], str] = {}
        self._newest = Reading()
        self._heard = clock()  # when NVML told something, last

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then end all daemons.

        Raises:
            KeeperError: only a new container can go on.
        """
        beating = asyncio.create_task(self._beat())
        with reading_gpus(
            self._take, every_s=self._settings.read_every_s, modes=self._modes, listen=False
        ):
            try:
                await self._until(stop)
            finally:  # while the modes can still be set
                self._stopping = True
                ending = [task for _, task in self._daemons.values()]
                self._end(list(self._daemons))
                await asyncio.gather(*ending, return_exceptions=True)
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)

    async def _until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._newest.outdated:
                raise MpsSupervisorError(self._newest.problem)
            silent_s = self._clock() - self._heard
            # The driver's libraries are put into a container when it is made, or never.
            if not self._daemons and silent_s > self._settings.nvml_restart_after_s:
                problem = self._newest.problem or "one of its calls hangs"
                raise MpsSupervisorError(f"NVML has told nothing for {silent_s:.0f} s: {problem}")
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await stop.wait()

    def _take(self, reading: Reading) -> None:
        """GPUs came or went; those that cannot be read now keep their daemons."""
        self._newest = reading
        self._tell("the GPUs cannot be read", reading.problem)
        if reading.problem:
            return
        self._heard = self._clock()
        self._mode_troubles = {
            device.uuid: device.mode_problem for device in reading.devices if device.mode_problem
        }
        if self._stopping:
            return
        wanted = {device.uuid for device in reading.devices if shareable(device)}
        for uuid in wanted - self._daemons.keys():
            self._start(uuid)
        if not reading.unreadable:
            self._end(self._daemons.keys() - wanted)

    def _start(self, uuid: str) -> None:
        async def set_mode(mode: ComputeMode) -> None:
            if self._settings.mps_exclusive:
                await self._modes.want(uuid, mode)

        daemon = Daemon(uuid, self._settings, changed=self._wake.set, set_mode=set_mode)
        task = asyncio.create_task(daemon.run())
        self._daemons[uuid] = daemon, task
        task.add_done_callback(lambda ended: self._ended(uuid, ended))

    def _end(self, uuids: Iterable[str]) -> None:
        """Have these daemons end, each told once: a second time would cut the ending short."""
        for uuid in uuids:
            if uuid not in self._ending:
                self._ending.add(uuid)
                self._daemons[uuid][1].cancel()

    def _ended(self, uuid: str, task: asyncio.Task[None]) -> None:
        """A daemon is kept no longer: its GPU has gone, or we are to end, or we have a fault."""
        daemon, _ = self._daemons.pop(uuid)
        self._ending.discard(uuid)
        self._write(uuid, daemon.state)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("keeping an MPS daemon failed", gpu=uuid, exc_info=error)

    async def _beat(self) -> None:
        while True:
            self._wake.clear()
            for uuid, (daemon, _) in self._daemons.items():
                trouble = self._mode_troubles.get(uuid)
                state = daemon.state
                if trouble and not state.trouble:
                    state = DaemonState("ill", trouble, state.restarts)
                self._write(uuid, state)
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await self._wake.wait()

    def _write(self, uuid: str, state: DaemonState) -> None:
        problem = ""
        try:
            write_state(Path(self._settings.mps_root) / uuid, state, clock=self._clock)
        except OSError as error:
            problem = str(error)
        self._tell("the state of an MPS daemon cannot be written", problem, gpu=uuid)

    def _tell(self, what: str, problem: str, *, gpu: str = "all") -> None:
        """Log a problem when it is another than before; none is one too, but not worth a line."""
        if problem and problem != self._told.get((what, gpu)):
            log.error(what, problem=problem, gpu=gpu)
        self._told[what, gpu] = problem
