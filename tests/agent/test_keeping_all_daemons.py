"""`esg mps`: which GPUs get a daemon, what is written of each, and how it ends."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scheduler.agent.keeping import Keeper
from tests.agent.daemons import FakeDaemons
from tests.agent.gpus import DRIVER_NOT_LOADED, EXCLUSIVE_PROCESS, FakeGpus, a100
from tests.testbed.api import wait_until

ESG = str(Path(sys.executable).with_name("esg"))


@asynccontextmanager
async def kept(daemons: FakeDaemons, **settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(Keeper(daemons.settings(**settings)).run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until_phase(daemons: FakeDaemons, uuid: str, phase: str) -> str:
    """Wait until that is said of a GPU's daemon; the trouble that is said with it."""
    async with asyncio.timeout(20):
        while (state := daemons.state(uuid)).get("phase") != phase:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)
    return state["trouble"]


async def test_each_gpu_that_can_be_shared_gets_one(own_gpus: FakeGpus, daemons: FakeDaemons):
    """In mode EXCLUSIVE_PROCESS; a GPU with MIG gets none."""
    own_gpus.set(1, mig=1)
    first, second = own_gpus.uuids
    async with kept(daemons):
        await until_phase(daemons, first, "ready")
        assert daemons.starts(first)[0]["CUDA_VISIBLE_DEVICES"] == first
        assert own_gpus.mode(0) == EXCLUSIVE_PROCESS
    assert not (daemons.root / second).exists()
    assert await until_phase(daemons, first, "stopped")


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
        assert "EXCLUSIVE_PROCESS cannot be set" in await until_phase(daemons, first, "ill")
        await until_phase(daemons, second, "ready")
        own_gpus.set(0, mode_locked=0)
        await until_phase(daemons, first, "ready")


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
        async with asyncio.timeout(10):
            while not any(entry["event"] == "the GPUs cannot be read" for entry in logged):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        own_gpus.set(1, error=15)
        own_gpus.set_all(init=0)
        before = daemons.state(first)["at"]
        async with asyncio.timeout(10):
            while daemons.state(first)["at"] < before + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [daemons.pid(first), daemons.pid(second)] == pids
        assert daemons.state(second)["phase"] == "ready"


async def test_a_state_that_cannot_be_written_is_told_once(own_gpus, daemons, logged):
    """The agent sees from its age that there is none; its own log says why."""
    first, second = own_gpus.uuids
    (daemons.root / second).touch()

    def told() -> list[str]:
        return [entry["gpu"] for entry in logged if "cannot be written" in entry["event"]]

    async with kept(daemons), asyncio.timeout(10):
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
