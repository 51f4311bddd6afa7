"""`esg mps`: which GPUs get a daemon, what is written of each, and how it ends."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scheduler.agent import compute_modes
from scheduler.agent.mps_supervisor import MpsSupervisor, MpsSupervisorError
from tests.agent.daemons import FakeDaemons
from tests.agent.gpus import (
    DRIVER_EXCHANGED,
    DRIVER_NOT_LOADED,
    EXCLUSIVE_PROCESS,
    PROHIBITED,
    FakeGpus,
    a100,
)
from tests.agent.readings import Clock
from tests.testbed.api import wait_until

ESG = str(Path(sys.executable).with_name("esg"))


@asynccontextmanager
async def kept(daemons: FakeDaemons, **settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    unchecked = daemons.settings().model_copy(update=settings)
    task = asyncio.create_task(MpsSupervisor(unchecked).run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until_phase(daemons: FakeDaemons, uuid: str, phase: str) -> str:
    """Wait until that is said of a GPU's daemon; the trouble that is said with it."""
    async with asyncio.timeout(60):
        while (state := daemons.state(uuid)).get("phase") != phase:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)
    return state["trouble"]


async def test_each_gpu_that_can_be_shared_gets_one(own_gpus: FakeGpus, daemons: FakeDaemons):
    """In mode EXCLUSIVE_PROCESS, and then in PROHIBITED; a GPU with MIG gets neither."""
    own_gpus.set(1, mig=1)
    first, second = own_gpus.uuids
    async with kept(daemons):
        await until_phase(daemons, first, "ready")
        assert daemons.starts(first)[0]["CUDA_VISIBLE_DEVICES"] == first
        assert own_gpus.mode(0) == EXCLUSIVE_PROCESS
    assert not (daemons.root / second).exists()
    assert await until_phase(daemons, first, "stopped")
    assert (own_gpus.mode(0), own_gpus.mode(1)) == (PROHIBITED, 0)


async def test_a_gpu_whose_daemon_does_not_answer_takes_nobody(own_gpus, daemons):
    """Whoever starts without a daemon runs without limits; the other GPUs are not concerned."""
    first, second = own_gpus.uuids
    daemons.fault(first, ends=True)
    async with kept(daemons):
        await until_phase(daemons, first, "ill")
        await until_phase(daemons, second, "ready")
        assert (own_gpus.mode(0), own_gpus.mode(1)) == (PROHIBITED, EXCLUSIVE_PROCESS)
        daemons.fault(first)
        await until_phase(daemons, first, "ready")
        assert own_gpus.mode(0) == EXCLUSIVE_PROCESS


async def test_a_mode_that_somebody_else_changes_is_put_right(own_gpus, daemons):
    """At the next reading."""
    async with kept(daemons):
        await until_phase(daemons, own_gpus.uuids[0], "ready")
        own_gpus.set_mode(0, 0)
        async with asyncio.timeout(60):
            while own_gpus.mode(0) != EXCLUSIVE_PROCESS:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)


async def test_a_mode_is_set_at_once(own_gpus, daemons):
    """No start of a daemon waits for the next reading's time."""
    async with kept(daemons, read_every_s=3600):
        await until_phase(daemons, own_gpus.uuids[0], "ready")


async def test_the_compute_mode_is_left_where_that_is_wanted(own_gpus, daemons):
    """A setting, for those who set it themselves."""
    async with kept(daemons, mps_exclusive=False):
        await until_phase(daemons, own_gpus.uuids[0], "ready")
    assert own_gpus.mode(0) == 0


async def test_a_mode_that_cannot_be_set_makes_the_gpu_ill(own_gpus, daemons):
    """Its daemon runs, but limits could be gone around."""
    own_gpus.set(0, mode_locked=1)
    first, second = own_gpus.uuids
    async with kept(daemons):
        assert "cannot be set: Insuff" in await until_phase(daemons, first, "ill")
        await until_phase(daemons, second, "ready")
        own_gpus.set(0, mode_locked=0)
        await until_phase(daemons, first, "ready")


async def test_daemons_end_while_nvml_hangs(own_gpus, daemons, monkeypatch):
    """A mode that nobody sets is not waited for."""
    monkeypatch.setattr(compute_modes, "_PATIENCE_S", 0.2)
    first, second = own_gpus.uuids
    async with kept(daemons):
        for uuid in (first, second):
            await until_phase(daemons, uuid, "ready")
        own_gpus.set_all(hang=1)
    assert {daemons.state(uuid)["phase"] for uuid in (first, second)} == {"stopped"}
    own_gpus.set_all(hang=0)


async def test_gpus_come_and_go(own_gpus: FakeGpus, daemons: FakeDaemons):
    """One that is replaced loses its daemon, and the new one gets one."""
    first, old = own_gpus.uuids
    async with kept(daemons):
        await until_phase(daemons, old, "ready")
        own_gpus.replace(1, a100(1, "new"))
        await until_phase(daemons, own_gpus.uuids[1], "ready")
        await until_phase(daemons, old, "stopped")
        own_gpus.set(1, mig=1)
        await until_phase(daemons, own_gpus.uuids[1], "stopped")
        assert daemons.state(first)["phase"] == "ready"


async def test_daemons_outlive_troubles_with_nvml(own_gpus: FakeGpus, daemons: FakeDaemons, logged):
    """Pods may run well while NVML does not answer; their daemons are not ended for it."""
    first, second = own_gpus.uuids
    async with kept(daemons):
        for uuid in (first, second):
            await until_phase(daemons, uuid, "ready")
        pids = [daemons.pid(first), daemons.pid(second)]
        own_gpus.set_all(init=DRIVER_NOT_LOADED)
        async with asyncio.timeout(60):
            while not any(entry["event"] == "the GPUs cannot be read" for entry in logged):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        own_gpus.set(1, error=15)
        own_gpus.set_all(init=0)
        before = daemons.state(first)["at"]
        async with asyncio.timeout(60):
            while daemons.state(first)["at"] < before + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [daemons.pid(first), daemons.pid(second)] == pids
        assert daemons.state(second)["phase"] == "ready"


async def test_a_driver_that_was_exchanged_wants_a_new_process(own_gpus, daemons, monkeypatch):
    """All daemons are ended first."""
    monkeypatch.setattr(compute_modes, "_PATIENCE_S", 0.2)
    first, _ = own_gpus.uuids
    keeping = asyncio.create_task(MpsSupervisor(daemons.settings()).run(asyncio.Event()))
    await until_phase(daemons, first, "ready")
    own_gpus.set_all(init=DRIVER_EXCHANGED)
    with pytest.raises(MpsSupervisorError, match="exchanged"):
        await keeping
    assert daemons.state(first)["phase"] == "stopped"


@pytest.mark.parametrize(
    ("whole", "why"), [({"init": DRIVER_NOT_LOADED}, "is not loaded"), ({"hang": 1}, "hangs")]
)
async def test_nvml_that_tells_nothing_wants_a_new_container(own_gpus, daemons, whole, why):
    """It may have been made before there were libraries to put into it."""
    clock = Clock()
    own_gpus.set_all(**whole)
    keeping = asyncio.create_task(
        MpsSupervisor(daemons.settings(), clock=clock).run(asyncio.Event())
    )
    await asyncio.wait([keeping], timeout=0.5)
    assert not keeping.done()
    clock.now += 61
    with pytest.raises(MpsSupervisorError, match=f"nothing for 61 s: .*{why}"):
        await keeping
    own_gpus.set_all(init=0, hang=0)


async def test_silence_of_nvml_ends_no_daemon(own_gpus, daemons, logged, monkeypatch):
    """Its clients may run well."""
    monkeypatch.setattr(compute_modes, "_PATIENCE_S", 0.2)
    clock = Clock()
    stop = asyncio.Event()
    keeping = asyncio.create_task(MpsSupervisor(daemons.settings(), clock=clock).run(stop))
    for uuid in own_gpus.uuids:
        await until_phase(daemons, uuid, "ready")
    own_gpus.set_all(init=DRIVER_NOT_LOADED)
    async with asyncio.timeout(60):
        while not any(entry["event"] == "the GPUs cannot be read" for entry in logged):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    clock.now += 61
    await asyncio.wait([keeping], timeout=1.5)  # longer than between two looks
    assert not keeping.done()
    stop.set()
    await keeping


async def test_a_state_that_cannot_be_written_is_told_once(own_gpus, daemons, logged):
    """The agent sees from its age that there is none; its own log says why."""
    first, second = own_gpus.uuids
    (daemons.root / second).touch()

    def told() -> list[str]:
        return [entry["gpu"] for entry in logged if "cannot be written" in entry["event"]]

    async with kept(daemons), asyncio.timeout(60):
        while not told():  # noqa: ASYNC110 - a log
            await asyncio.sleep(0.02)
        await until_phase(daemons, first, "ready")
        before = daemons.state(first)["at"]
        while daemons.state(first)["at"] <= before:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)
    assert told() == [second]


def test_the_command_keeps_daemons_until_it_is_told_to_end(
    gpus: FakeGpus, daemons: FakeDaemons, tmp_path: Path
):
    """All eight at once; SIGTERM ends them, and the command with status 0."""
    environment = {**gpus.environment, **daemons.environment, "PATH": "/usr/bin:/bin"}
    environment["ESG_AGENT_MPS_OWN_SHM"] = "false"
    with (tmp_path / "log").open("wb") as log:
        keeper = subprocess.Popen([ESG, "mps"], env=environment, stdout=log, stderr=log)

        def ready() -> bool:
            assert keeper.poll() is None, (tmp_path / "log").read_text()
            return {daemons.state(uuid).get("phase") for uuid in gpus.uuids} == {"ready"}

        try:
            wait_until(ready, what=f"all daemons ready, see {log.name}", timeout_s=90)
            keeper.send_signal(signal.SIGTERM)
            assert keeper.wait(20) == 0
        finally:
            keeper.kill()
            keeper.wait()
    assert {daemons.state(uuid)["phase"] for uuid in gpus.uuids} == {"stopped"}
    assert [list((daemons.root / uuid / "pipe").iterdir()) for uuid in gpus.uuids] == [[]] * 8


def test_the_command_says_why_it_cannot_go_on(gpus: FakeGpus, daemons: FakeDaemons):
    """In a line, with status 1: the kubelet makes a new container."""
    gpus.set_all(init=DRIVER_EXCHANGED)
    environment = {**gpus.environment, **daemons.environment}
    ended = subprocess.run(
        [ESG, "mps"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: the driver was exchanged")
