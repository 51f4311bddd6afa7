"""One GPU's daemon under test."""

import asyncio
import os
from contextlib import asynccontextmanager, suppress

from scheduler.agent.mps.clients import MpsClients
from scheduler.agent.mps.control import Control, ControlError, DaemonFolders
from scheduler.agent.mps.daemon import Daemon
from scheduler.agent.mps.daemon_state import DaemonState

UUID = "GPU-1"


class RunningDaemon:
    """A running daemon, whose state changes can be waited for."""

    def __init__(self, daemons, *, pod_of=lambda _: None, **settings):
        self.folders = DaemonFolders(daemons.root / UUID)
        self.daemon = Daemon(
            UUID,
            daemons.settings(**settings),
            changed=self.note,
            set_mode=self.set_mode,
            random=lambda: 0,
        )
        self.clients = self.daemon.clients = MpsClients(pod_of=pod_of)
        self.states: asyncio.Queue[DaemonState] = asyncio.Queue()
        self.modes: list[tuple[str, bool, int]] = []  # mode, daemon exists, number of servers

    def note(self):
        self.states.put_nowait(self.daemon.state)

    async def set_mode(self, mode):
        exists = (self.folders.pipe / "control").exists()
        log = self.folders.log / "server.log"
        servers = len(log.read_text().splitlines()) if log.exists() else 0
        self.modes.append((mode.name, exists, servers))

    async def until(self, condition):
        """Wait for the first state that meets the condition."""
        async with asyncio.timeout(60):
            while not condition(state := await self.states.get()):
                pass
        return state

    async def ready(self, restarts=0):
        return await self.until(lambda s: s.phase == "ready" and s.restarts == restarts)

    async def unhealthy(self):
        return await self.until(lambda s: s.phase == "unhealthy")


@asynccontextmanager
async def running_daemon(daemons, **settings):
    running = RunningDaemon(daemons, **settings)
    task = asyncio.create_task(running.daemon.run())
    try:
        yield running
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def control_of(daemons):
    """Create the control of a daemon that is not running."""
    folders = DaemonFolders(daemons.root / UUID)
    folders.create()
    return Control(str(daemons.program), UUID, folders, timeout_s=3), folders


async def first_answer(control):
    """Wait for the daemon's first answer."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ControlError):
                await control.servers()
                return


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
