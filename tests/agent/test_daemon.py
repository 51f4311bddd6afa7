"""One GPU's MPS daemon: its start, its checks, and its restarts."""

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from scheduler.agent import daemon, mount_namespace
from scheduler.agent.control import Control, ControlError, DaemonFolders, environment
from scheduler.agent.daemon import Daemon
from scheduler.agent.daemon_state import DaemonState
from scheduler.agent.mps_clients import MpsClients
from scheduler.agent.shared_memory import remove_unused
from tests.agent.harness import until
from tests.require import needing

UUID = "GPU-1"
SHM = Path("/dev/shm")


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


def inode(folder):
    return folder.stat().st_ino


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_start_for_one_gpu(daemons, monkeypatch):
    """The daemon gets its own folders, one visible GPU and no limit; nothing from this process."""
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    async with running_daemon(daemons) as running:
        await running.ready()
        [start] = daemons.starts(UUID)
    assert start["CUDA_VISIBLE_DEVICES"] == UUID
    assert start["CUDA_MPS_LOG_DIRECTORY"] == str(daemons.root / UUID / "log")
    assert start["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"
    assert start["arguments"] == ["-f"]


async def test_clients_of_any_user_can_use_its_folders(daemons):
    """Whatever the umask, the pipe is reachable, and /dev/shm is writable."""
    umask = os.umask(0o077)
    try:
        async with running_daemon(daemons) as running:
            await running.ready()
            modes = {p.name: p.stat().st_mode & 0o7777 for p in running.folders.root.iterdir()}
            modes["root"] = running.folders.root.stat().st_mode & 0o7777
    finally:
        os.umask(umask)
    expected = {"root": 0o755, "pipe": 0o755, "log": 0o755, "shm": 0o1777}
    assert modes.items() >= expected.items()


async def test_multiuser_is_a_setting(daemons):
    """The daemon gets NVIDIA's option for it."""
    async with running_daemon(daemons, mps_multiuser=True) as running:
        await running.ready()
        assert daemons.starts(UUID)[0]["arguments"] == ["-f", "-multiuser-server"]


@needing(
    subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0,
    "a mount namespace needs CAP_SYS_ADMIN",
)
async def test_dev_shm_is_the_gpus_folder(daemons):
    """Its clients use the same folder; the machine's own /dev/shm is unchanged."""
    machine_shm = inode(SHM)
    async with running_daemon(daemons, mps_own_shm=True) as running:
        await running.ready()
        assert daemons.starts(UUID)[0]["shm"] == inode(running.folders.shm)
    assert inode(SHM) == machine_shm


async def test_leftovers_of_a_killed_daemon_are_removed(daemons):
    """Files in the pipe directory would prevent the next start; the folder itself stays."""
    folders = DaemonFolders(daemons.root / UUID)
    folders.create()
    for name in ("control", "nvidia-cuda-mps-control.pid", "log"):
        (folders.pipe / name).write_text("4194304")
    (folders.pipe / "server").mkdir()
    (folders.pipe / "server" / "namespace").touch()
    folder = folders.pipe.stat().st_ino
    async with running_daemon(daemons) as running:
        await running.ready()
    assert folders.pipe.stat().st_ino == folder


async def test_previous_daemon_is_ended(daemons, logged):
    """Two daemons for one GPU would conflict."""
    control, _ = control_of(daemons)
    previous = await control.start(multiuser=False, own_shm=False)
    await first_answer(control)
    async with running_daemon(daemons) as running:
        await running.ready()
        assert await previous.wait() == 0
        assert daemons.pid(UUID) != previous.pid
    assert "previous MPS daemon ended" in [entry["event"] for entry in logged]


async def test_compute_mode_without_an_answering_daemon(daemons):
    """It is PROHIBITED before the start and before the end; the server finds the GPU open."""
    async with running_daemon(daemons) as running:
        await running.ready()
        daemons.fault(UUID, servers={"4711": "FAULT"})
        await running.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await running.ready(restarts=1)
    assert running.modes == [
        ("PROHIBITED", False, 0),
        ("EXCLUSIVE_PROCESS", True, 0),
        ("PROHIBITED", True, 1),
        ("PROHIBITED", False, 1),
        ("EXCLUSIVE_PROCESS", True, 1),
        ("PROHIBITED", True, 2),
    ]


@pytest.mark.parametrize(
    ("settings", "uid"),
    [
        ({}, 1000),
        ({"mps_uid": 0}, 0),
        ({"mps_uid": 7}, 7),
        ({"mps_uid": 7, "mps_multiuser": True}, 0),
    ],
)
async def test_first_server_has_the_configured_user(daemons, settings, uid):
    """A server for several users runs as root."""
    async with running_daemon(daemons, **settings) as running:
        await running.ready()
    assert daemons.servers(UUID) == [uid]


async def test_ready_with_an_active_server(daemons):
    """An INITIALIZING server is waited for."""
    daemons.fault(UUID, servers={"4711": "INITIALIZING"})
    async with running_daemon(daemons) as running:
        await until(lambda: ("EXCLUSIVE_PROCESS", True, 0) in running.modes)
        assert running.states.empty()
        daemons.fault(UUID, servers={"4711": "ACTIVE"})
        assert await running.states.get() == DaemonState("ready")


async def test_failing_server_makes_the_daemon_unhealthy(daemons, monkeypatch):
    """The daemon answers, but its servers end one after the other."""
    monkeypatch.setattr(daemon, "_START_S", 0.3)
    daemons.fault(UUID, servers={})
    async with running_daemon(daemons) as running:
        # On a slow machine, the daemon's own start may exceed the shortened limit first.
        trouble = f"no MPS server is ACTIVE: there is none; see {running.folders.log}"
        state = await running.until(lambda s: s.trouble == trouble)
        assert state.phase == "unhealthy"
        daemons.fault(UUID)
        ready = await running.until(lambda s: s.phase == "ready")
        assert ready.restarts >= state.restarts >= 1


@pytest.mark.slow
async def test_ended_server_is_requested_again(daemons):
    """It ends for a client of another user; that is no trouble, however often."""
    async with running_daemon(daemons, mps_fault_grace_s=60) as running:
        for ended in (1, 2):
            await running.ready()
            daemons.fault(UUID, ended=ended)
            await until(lambda count=ended: len(daemons.servers(UUID)) > count)
            daemons.fault(UUID, servers={"4711": "FAULT"})
            assert "FAULT" in (await running.states.get()).trouble
            daemons.fault(UUID, ended=ended)


@pytest.mark.parametrize("servers", [{}, {"4711": "INITIALIZING"}])
@pytest.mark.slow
async def test_missing_server_is_a_trouble(daemons, servers):
    """The next check after the request finds none, and the daemon is restarted."""
    async with running_daemon(daemons) as running:
        await running.ready()
        daemons.fault(UUID, servers=servers)
        state = await running.unhealthy()
        assert "no MPS server is ACTIVE" in state.trouble
        assert daemons.servers(UUID) == [1000, 1000]
        await running.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await running.ready(restarts=1)


async def test_killed_daemon_is_restarted(daemons):
    """It is unhealthy with the reason, and restarted despite its leftovers."""
    async with running_daemon(daemons) as running:
        await running.ready()
        first = daemons.pid(UUID)
        daemons.kill(UUID)
        state = await running.unhealthy()
        assert state.trouble == "MPS daemon has ended with signal 9"
        await running.ready(restarts=1)
        assert daemons.pid(UUID) != first


@pytest.mark.slow
async def test_daemon_that_ends_repeatedly(daemons, monkeypatch):
    """Each restart is counted; the daemon is ready once it stays."""
    daemons.fault(UUID, ends=True)
    async with running_daemon(daemons) as running:
        await running.until(lambda s: s.restarts == 2)
        daemons.fault(UUID)
        await running.ready(restarts=2)
    assert len(daemons.starts(UUID)) == 3


@pytest.mark.slow
async def test_persistent_fault_leads_to_a_restart(daemons):
    """Clients that do not end keep the server in FAULT, so the daemon is restarted."""
    async with running_daemon(daemons) as running:
        await running.ready()
        daemons.fault(UUID, servers={"4711": "ACTIVE", "4712": "FAULT"})
        state = await running.unhealthy()
        assert "server 4712 is in state FAULT" in state.trouble
        await running.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await running.ready(restarts=1)


async def test_temporary_fault_needs_no_restart(daemons):
    """When its clients have ended, the server is active again."""
    async with running_daemon(daemons, mps_fault_grace_s=60) as running:
        await running.ready()
        daemons.fault(UUID, servers={"4711": "FAULT"})
        await running.unhealthy()
        daemons.fault(UUID, servers={"4711": "ACTIVE"})
        await running.ready()
    assert len(daemons.starts(UUID)) == 1


@pytest.mark.slow
async def test_hanging_daemon_is_restarted(daemons):
    """It has some time to recover; then it is ended, if necessary by force."""
    async with running_daemon(daemons, mps_ask_timeout_s=3, mps_stop_s=0) as running:
        await running.ready()
        first = daemons.pid(UUID)
        daemons.fault(UUID, hangs=True)
        state = await running.unhealthy()
        assert "did not answer 'get_server_list' within 3 s" in state.trouble
        await running.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await running.ready(restarts=1)
    assert not is_alive(first)


async def test_missing_program(daemons):
    """The trouble names it; starts are retried, because the driver may come later."""
    async with running_daemon(daemons, mps_control="/nowhere/nvidia-cuda-mps-control") as running:
        state = await running.unhealthy()
        assert "/nowhere/nvidia-cuda-mps-control" in state.trouble
        assert (await running.until(lambda s: s.restarts == 2)).restarts == 2


async def test_folder_cannot_be_created(daemons):
    """The trouble names the folder, e.g. if a file has its name."""
    (daemons.root / UUID).write_text("")
    async with running_daemon(daemons) as running:
        state = await running.unhealthy()
    assert str(daemons.root / UUID) in state.trouble


async def test_daemon_quits_at_the_end(daemons):
    """It removes its files, and its phase is stopped."""
    async with running_daemon(daemons) as running:
        await running.ready()
        pid = daemons.pid(UUID)
    assert not is_alive(pid)
    assert list(running.folders.pipe.iterdir()) == []
    assert running.daemon.state.phase == "stopped"


@pytest.mark.slow
async def test_hanging_daemon_is_killed_at_the_end(daemons):
    """All its child processes end, too."""
    async with running_daemon(
        daemons, mps_ask_timeout_s=3, mps_stop_s=0, mps_fault_grace_s=60
    ) as running:
        await running.ready()
        pid = daemons.pid(UUID)
        daemons.fault(UUID, hangs=True)
        await running.unhealthy()
    assert not is_alive(pid)


@pytest.mark.slow
async def test_stop_during_a_restart(daemons):
    """The phase stopped guarantees that the daemon has ended."""
    async with running_daemon(daemons, mps_ask_timeout_s=3, mps_fault_grace_s=0) as running:
        await running.ready()
        pid = daemons.pid(UUID)
        daemons.fault(UUID, hangs=True)
        await running.until(lambda s: s.restarts == 1)
        await until(lambda: running.modes[-1] == ("PROHIBITED", True, 1))
        asyncio.get_running_loop().call_later(0.1, daemons.fault, UUID)
    assert not is_alive(pid)
    assert running.daemon.state.phase == "stopped"


async def test_unused_shm_files_are_removed(daemons, tmp_path, monkeypatch):
    """At each start; a file that a process has open stays."""
    # Only this process is readable on any machine.
    (tmp_path / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    monkeypatch.setattr(daemon, "remove_unused", lambda folder: remove_unused(folder, tmp_path))
    folders = DaemonFolders(daemons.root / UUID)
    folders.create()
    (folders.shm / "leftover").touch()
    with (folders.shm / "open").open("w"):
        async with running_daemon(daemons) as running:
            await running.ready()
            assert [path.name for path in folders.shm.iterdir()] == ["open"]


async def test_unreadable_shm_does_not_prevent_the_start(daemons, logged, monkeypatch):
    """The log has the reason."""

    def refuse(folder):
        raise PermissionError(13, "not for you", str(folder))

    monkeypatch.setattr(daemon, "remove_unused", refuse)
    async with running_daemon(daemons) as running:
        await running.ready()
    assert "not for you" in next(e["problem"] for e in logged if "shm" in e["event"])


async def test_daemon_ends_with_its_supervisor(daemons):
    """The kernel ends it, however the supervisor ended."""
    control, folders = control_of(daemons)
    command = f"{sys.executable} -I -S {mount_namespace.__file__} '' {daemons.program} -f"
    supervisor = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"{command} & wait"), env={**os.environ, **environment(UUID, folders)}
    )
    await first_answer(control)
    descriptor = os.pidfd_open(daemons.pid(UUID))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    supervisor.kill()
    async with asyncio.timeout(60):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)
    await supervisor.wait()


async def test_command_without_a_daemon(daemons):
    """The error has the program's own message."""
    control, _ = control_of(daemons)
    with pytest.raises(ControlError, match="Cannot find MPS control daemon process"):
        await control.servers()
