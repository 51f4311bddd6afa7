"""One GPU's MPS daemon: its start, its checks, and its restarts."""

import asyncio
import gc
import os
import subprocess
from pathlib import Path

import pytest

from scheduler.agent.mps import daemon
from scheduler.agent.mps.clients import MpsClients
from scheduler.agent.mps.control import ControlError, DaemonFolders
from scheduler.agent.mps.daemon_state import DaemonState
from scheduler.agent.mps.shared_memory import remove_unused
from tests.agent.harness import until
from tests.agent.running_daemon import UUID, control_of, first_answer, is_alive, running_daemon
from tests.require import needing

SHM = Path("/dev/shm")


def inode(folder):
    return folder.stat().st_ino


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


@pytest.mark.slow
async def test_multiuser_is_a_setting(daemons):
    """The daemon gets NVIDIA's option for it."""
    async with running_daemon(daemons, mps_multiuser=True) as running:
        await running.ready()
        assert daemons.starts(UUID)[0]["arguments"] == ["-f", "-multiuser-server"]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_ready_with_an_active_server(daemons):
    """An INITIALIZING server is waited for."""
    daemons.fault(UUID, servers={"4711": "INITIALIZING"})
    async with running_daemon(daemons) as running:
        await until(lambda: ("EXCLUSIVE_PROCESS", True, 0) in running.modes)
        assert running.states.empty()
        daemons.fault(UUID, servers={"4711": "ACTIVE"})
        assert await running.states.get() == DaemonState("ready")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
async def test_checks_leave_no_futures(daemons):
    """A daemon runs for months, so nothing may grow with the number of its checks."""

    class CheckedClients(MpsClients):
        checks = 0

        def observe(self, clients, **options):
            self.checks += 1
            super().observe(clients, **options)

    def futures():
        return sum(type(referent) is asyncio.Future for referent in gc.get_objects())

    async with running_daemon(daemons) as running:
        clients = running.daemon.clients = CheckedClients(pod_of=lambda _: None)
        await until(lambda: clients.checks > 2)
        before = futures()
        await until(lambda: clients.checks > 22)
        assert futures() - before < 10


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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_unreadable_shm_does_not_prevent_the_start(daemons, logged, monkeypatch):
    """The log has the reason."""

    def refuse(folder):
        raise PermissionError(13, "not for you", str(folder))

    monkeypatch.setattr(daemon, "remove_unused", refuse)
    async with running_daemon(daemons) as running:
        await running.ready()
    assert "not for you" in next(e["problem"] for e in logged if "shm" in e["event"])


async def test_command_without_a_daemon(daemons):
    """The error has the program's own message."""
    control, _ = control_of(daemons)
    with pytest.raises(ControlError, match="Cannot find MPS control daemon process"):
        await control.servers()
