"""One GPU's MPS daemon: started as it should be, looked at, and started again."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from scheduler.agent import daemon, mount_namespace
from scheduler.agent.compute_modes import ComputeMode
from scheduler.agent.control import Control, ControlError, Places, environment
from scheduler.agent.daemon import Daemon
from scheduler.agent.daemon_state import DaemonState
from scheduler.agent.shared_memory import remove_unused
from tests.agent.daemons import FakeDaemons
from tests.require import needing

UUID = "GPU-1"
SHM = Path("/dev/shm")


class Kept:
    """A daemon under care, whose changes can be waited for."""

    def __init__(self, daemons: FakeDaemons, **settings) -> None:
        self.places = Places(daemons.root / UUID)
        self.daemon = Daemon(
            UUID,
            daemons.settings(**settings),
            changed=self.note,
            set_mode=self.set_mode,
            random=lambda: 0,
        )
        self.states: asyncio.Queue[DaemonState] = asyncio.Queue()
        self.modes: list[tuple[str, bool, int]] = []  # whether it was there, its servers

    def note(self) -> None:
        self.states.put_nowait(self.daemon.state)

    async def set_mode(self, mode: ComputeMode) -> None:
        there = (self.places.pipe / "control").exists()
        asked = self.places.log / "server.log"
        servers = len(asked.read_text().splitlines()) if asked.exists() else 0
        self.modes.append((mode.name, there, servers))

    async def until(self, condition: Callable[[DaemonState], bool]) -> DaemonState:
        """The first state that is so."""
        async with asyncio.timeout(60):
            while not condition(state := await self.states.get()):
                pass
        return state

    async def ready(self, restarts: int = 0) -> DaemonState:
        return await self.until(lambda s: s.phase == "ready" and s.restarts == restarts)

    async def ill(self) -> DaemonState:
        return await self.until(lambda s: s.phase == "ill")


@asynccontextmanager
async def kept(daemons: FakeDaemons, **settings) -> AsyncIterator[Kept]:
    made = Kept(daemons, **settings)
    task = asyncio.create_task(made.daemon.run())
    try:
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def control_of(daemons: FakeDaemons) -> tuple[Control, Places]:
    """The way to a daemon that is nobody's yet."""
    places = Places(daemons.root / UUID)
    places.make()
    return Control(str(daemons.program), UUID, places, timeout_s=3), places


async def answers(control: Control) -> None:
    """Wait for the daemon's first answer."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ControlError):
                await control.servers()
                return


def inode(folder: Path) -> int:
    return folder.stat().st_ino


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_is_started_for_its_gpu_alone(daemons: FakeDaemons, monkeypatch):
    """Own folders, one visible GPU, no limit below the whole, nothing of our own environment."""
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    async with kept(daemons) as made:
        await made.ready()
        [start] = daemons.starts(UUID)
    assert start["CUDA_VISIBLE_DEVICES"] == UUID
    assert start["CUDA_MPS_LOG_DIRECTORY"] == str(daemons.root / UUID / "log")
    assert start["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"
    assert start["arguments"] == ["-f"]


async def test_clients_of_any_user_can_enter_its_folders(daemons: FakeDaemons):
    """Whatever the umask: the way to the pipe, and a /dev/shm as it is everywhere."""
    before = os.umask(0o077)
    try:
        async with kept(daemons) as made:
            await made.ready()
            modes = {p.name: p.stat().st_mode & 0o7777 for p in made.places.root.iterdir()}
            modes["root"] = made.places.root.stat().st_mode & 0o7777
    finally:
        os.umask(before)
    wanted = {"root": 0o755, "pipe": 0o755, "log": 0o755, "shm": 0o1777}
    assert modes.items() >= wanted.items()


async def test_clients_of_several_users_are_a_setting(daemons: FakeDaemons):
    """With NVIDIA's own name for it."""
    async with kept(daemons, mps_multiuser=True) as made:
        await made.ready()
        assert daemons.starts(UUID)[0]["arguments"] == ["-f", "-multiuser-server"]


@needing(
    subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0,
    "a mount namespace needs CAP_SYS_ADMIN",
)
async def test_its_dev_shm_is_its_gpus(daemons: FakeDaemons):
    """Where clients of the GPU have theirs; the machine's own stays what it is."""
    before = inode(SHM)
    async with kept(daemons, mps_own_shm=True) as made:
        await made.ready()
        assert daemons.starts(UUID)[0]["shm"] == inode(made.places.shm)
    assert inode(SHM) == before


async def test_what_a_killed_daemon_left_is_cleared_away(daemons: FakeDaemons):
    """Files in the pipe directory would keep the next from starting; the folder itself stays."""
    places = Places(daemons.root / UUID)
    places.make()
    for name in ("control", "nvidia-cuda-mps-control.pid", "log"):
        (places.pipe / name).write_text("4194304")
    (places.pipe / "server").mkdir()
    (places.pipe / "server" / "namespace").touch()
    folder = places.pipe.stat().st_ino
    async with kept(daemons) as made:
        await made.ready()
    assert places.pipe.stat().st_ino == folder


async def test_a_daemon_that_was_there_before_is_ended(daemons: FakeDaemons, logged):
    """Two daemons for one GPU would be in each other's way."""
    control, _ = control_of(daemons)
    other = await control.start(multiuser=False, own_shm=False)
    await answers(control)
    async with kept(daemons) as made:
        await made.ready()
        assert await other.wait() == 0
        assert daemons.pid(UUID) != other.pid
    assert "another MPS daemon was there, and was ended" in [entry["event"] for entry in logged]


async def test_the_gpu_takes_nobody_while_no_daemon_answers(daemons: FakeDaemons):
    """PROHIBITED before it is started and before it is ended; its server finds the GPU open."""
    async with kept(daemons) as made:
        await made.ready()
        daemons.fault(UUID, servers={"4711": "FAULT"})
        await made.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await made.ready(restarts=1)
    assert made.modes == [
        ("PROHIBITED", False, 0),
        ("EXCLUSIVE_PROCESS", True, 0),
        ("PROHIBITED", True, 1),
        ("PROHIBITED", False, 1),
        ("EXCLUSIVE_PROCESS", True, 1),
        ("PROHIBITED", True, 2),
    ]


@pytest.mark.parametrize(
    ("settings", "uid"), [({}, 0), ({"mps_uid": 7}, 7), ({"mps_uid": 7, "mps_multiuser": True}, 0)]
)
async def test_its_first_server_is_for_the_user_that_is_set(daemons: FakeDaemons, settings, uid):
    """A server of several users is root's."""
    async with kept(daemons, **settings) as made:
        await made.ready()
    assert daemons.servers(UUID) == [uid]


async def test_it_is_ready_when_its_server_is(daemons: FakeDaemons):
    """A server that is INITIALIZING is waited for."""
    daemons.fault(UUID, servers={"4711": "INITIALIZING"})
    async with kept(daemons) as made:
        while ("EXCLUSIVE_PROCESS", True, 0) not in made.modes:  # noqa: ASYNC110 - another's list
            await asyncio.sleep(0.02)
        assert made.states.empty()
        daemons.fault(UUID, servers={"4711": "ACTIVE"})
        assert await made.states.get() == DaemonState("ready")


async def test_a_daemon_whose_server_cannot_be_started_is_ill(daemons: FakeDaemons, monkeypatch):
    """The daemon answers well, and its servers end one after the other."""
    monkeypatch.setattr(daemon, "_START_S", 0.3)
    daemons.fault(UUID, servers={})
    async with kept(daemons) as made:
        ill = await made.ill()
        assert "no MPS server that is ACTIVE (it has none at all)" in ill.trouble
        assert str(made.places.log) in ill.trouble
        daemons.fault(UUID)
        await made.ready(restarts=1)


async def test_a_server_that_has_gone_is_asked_for_again(daemons: FakeDaemons):
    """It goes for a client of another user; that alone is no trouble, however often."""
    async with kept(daemons, mps_fault_grace_s=60) as made:
        for ended in (1, 2):
            await made.ready()
            daemons.fault(UUID, ended=ended)
            async with asyncio.timeout(60):
                while len(daemons.servers(UUID)) <= ended:  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.02)
            daemons.fault(UUID, servers={"4711": "FAULT"})
            assert "FAULT" in (await made.states.get()).trouble
            daemons.fault(UUID, ended=ended)


@pytest.mark.parametrize("servers", [{}, {"4711": "INITIALIZING"}])
async def test_a_server_that_does_not_come_back_is_a_trouble(daemons: FakeDaemons, servers):
    """The next look after it was asked for finds none, and the daemon is started anew."""
    async with kept(daemons) as made:
        await made.ready()
        daemons.fault(UUID, servers=servers)
        ill = await made.ill()
        assert "no MPS server that is ACTIVE" in ill.trouble
        assert daemons.servers(UUID) == [0, 0]
        await made.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await made.ready(restarts=1)


async def test_death_is_noticed_and_mended(daemons: FakeDaemons):
    """Killed, it is ill with the reason, and is started again over what it left."""
    async with kept(daemons) as made:
        await made.ready()
        first = daemons.pid(UUID)
        daemons.kill(UUID)
        ill = await made.ill()
        assert ill.trouble == "its MPS daemon has ended with signal 9"
        await made.ready(restarts=1)
        assert daemons.pid(UUID) != first


async def test_a_daemon_that_keeps_dying_is_waited_for_longer(daemons: FakeDaemons, monkeypatch):
    """Each start is later than the one before, up to a bound."""
    daemons.fault(UUID, ends=True)
    async with kept(daemons) as made:
        await made.until(lambda s: s.restarts == 2)
        daemons.fault(UUID)
        await made.ready(restarts=2)
    assert len(daemons.starts(UUID)) == 3


async def test_a_fault_is_ill_at_once_and_restarted_when_it_lasts(daemons: FakeDaemons):
    """Clients that do not end keep the server in FAULT, so the daemon is started anew."""
    async with kept(daemons) as made:
        await made.ready()
        daemons.fault(UUID, servers={"4711": "ACTIVE", "4712": "FAULT"})
        ill = await made.ill()
        assert "server 4712 is in state FAULT" in ill.trouble
        await made.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await made.ready(restarts=1)


async def test_a_fault_that_ends_by_itself_needs_no_restart(daemons: FakeDaemons):
    """When its clients have ended, the server is active again."""
    async with kept(daemons, mps_fault_grace_s=60) as made:
        await made.ready()
        daemons.fault(UUID, servers={"4711": "FAULT"})
        await made.ill()
        daemons.fault(UUID, servers={"4711": "ACTIVE"})
        await made.ready()
    assert len(daemons.starts(UUID)) == 1


async def test_a_daemon_that_does_not_answer_is_restarted(daemons: FakeDaemons):
    """It has some time to come to itself; then it is ended, by force where it must be."""
    async with kept(daemons, mps_ask_timeout_s=0.5, mps_stop_s=0) as made:
        await made.ready()
        first = daemons.pid(UUID)
        daemons.fault(UUID, hangs=True)
        ill = await made.ill()
        assert "did not answer 'get_server_list' within 0.5 s" in ill.trouble
        await made.until(lambda s: s.restarts == 1)
        daemons.fault(UUID)
        await made.ready(restarts=1)
    assert not lives(first)


async def test_a_program_that_is_not_there_is_named(daemons: FakeDaemons):
    """And tried again, for a driver may still be on its way."""
    async with kept(daemons, mps_control="/nowhere/nvidia-cuda-mps-control") as made:
        ill = await made.ill()
        assert "/nowhere/nvidia-cuda-mps-control" in ill.trouble
        assert (await made.until(lambda s: s.restarts == 2)).restarts == 2


async def test_a_folder_that_cannot_be_made_is_named(daemons: FakeDaemons):
    """Another's file in its place, say."""
    (daemons.root / UUID).write_text("")
    async with kept(daemons) as made:
        ill = await made.ill()
    assert str(daemons.root / UUID) in ill.trouble


async def test_at_the_end_it_is_asked_to_quit(daemons: FakeDaemons):
    """It takes its files with it, and is told to be stopped."""
    async with kept(daemons) as made:
        await made.ready()
        pid = daemons.pid(UUID)
    assert not lives(pid)
    assert list(made.places.pipe.iterdir()) == []
    assert made.daemon.state.phase == "stopped"


async def test_one_that_will_not_quit_is_made_to(daemons: FakeDaemons):
    """With all that it has started."""
    async with kept(daemons, mps_ask_timeout_s=0.3, mps_stop_s=0, mps_fault_grace_s=60) as made:
        await made.ready()
        pid = daemons.pid(UUID)
        daemons.fault(UUID, hangs=True)
        await made.ill()
    assert not lives(pid)


async def test_to_be_stopped_while_it_is_being_ended_does_not_leave_it(daemons: FakeDaemons):
    """What said that it had stopped would have left it the GPU."""
    async with kept(daemons, mps_ask_timeout_s=0.3, mps_fault_grace_s=0) as made:
        await made.ready()
        pid = daemons.pid(UUID)
        daemons.fault(UUID, hangs=True)
        await made.until(lambda s: s.restarts == 1)
        while made.modes[-1] != ("PROHIBITED", True, 1):  # noqa: ASYNC110 - another's list
            await asyncio.sleep(0.02)
        asyncio.get_running_loop().call_later(0.1, daemons.fault, UUID)
    assert not lives(pid)
    assert made.daemon.state.phase == "stopped"


async def test_what_killed_processes_left_in_shm_goes(
    daemons: FakeDaemons, tmp_path: Path, monkeypatch
):
    """At each start; what a process has open stays."""
    # Of all processes, ours is the one that may be read everywhere.
    (tmp_path / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    monkeypatch.setattr(daemon, "remove_unused", lambda folder: remove_unused(folder, tmp_path))
    places = Places(daemons.root / UUID)
    places.make()
    (places.shm / "left").touch()
    with (places.shm / "open").open("w"):
        async with kept(daemons) as made:
            await made.ready()
            assert [path.name for path in places.shm.iterdir()] == ["open"]


async def test_shm_that_cannot_be_emptied_keeps_nobody_from_the_gpu(
    daemons: FakeDaemons, logged, monkeypatch
):
    """The log says why."""

    def refuse(folder: Path) -> int:
        raise PermissionError(13, "not for you", str(folder))

    monkeypatch.setattr(daemon, "remove_unused", refuse)
    async with kept(daemons) as made:
        await made.ready()
    assert "not for you" in next(e["problem"] for e in logged if "shm" in e["event"])


async def test_a_daemon_ends_with_its_keeper(daemons: FakeDaemons):
    """However that one ended: the kernel sees to it."""
    control, places = control_of(daemons)
    confined_ = f"{sys.executable} -I -S {mount_namespace.__file__} '' {daemons.program} -f"
    keeper = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"{confined_} & wait"), env={**os.environ, **environment(UUID, places)}
    )
    await answers(control)
    watched = os.pidfd_open(daemons.pid(UUID))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, ended.set)
    keeper.kill()
    async with asyncio.timeout(60):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(watched)
    os.close(watched)
    await keeper.wait()


async def test_nobody_answers_where_no_daemon_is(daemons: FakeDaemons):
    """The program's own words are passed on."""
    control, _ = control_of(daemons)
    with pytest.raises(ControlError, match="Cannot find MPS control daemon process"):
        await control.servers()
