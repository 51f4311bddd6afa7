"""`esg mps`: its daemons, their state files, and its end."""

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.agent.gpus import compute_modes
from scheduler.agent.mps.supervisor import MpsSupervisor, MpsSupervisorError
from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.grants import write_grants
from scheduler.agent.pods.permits import write_permits
from tests.agent.fakes import (
    DEFAULT,
    DRIVER_EXCHANGED,
    DRIVER_NOT_LOADED,
    EXCLUSIVE_PROCESS,
    PROHIBITED,
    Clock,
    a100,
)
from tests.agent.harness import until
from tests.testbed.api import wait_until

FOREIGN_POD = GrantedPod("a", "n", "a", "GPU-elsewhere", 30, 1024)
ESG = str(Path(sys.executable).with_name("esg"))


@asynccontextmanager
async def running_supervisor(daemons, **settings):
    stop = asyncio.Event()
    unvalidated = daemons.settings().model_copy(update=settings)
    task = asyncio.create_task(MpsSupervisor(unvalidated).run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until_phase(daemons, uuid, phase):
    """Wait until a GPU's daemon has the phase; return its trouble."""
    async with asyncio.timeout(60):
        while (state := daemons.state(uuid)).get("phase") != phase:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(0.02)
    return state["trouble"]


async def test_each_shareable_gpu_gets_a_daemon(own_gpus, daemons):
    """Its mode is EXCLUSIVE_PROCESS, and PROHIBITED after the end; MIG excludes a GPU."""
    own_gpus.set(1, mig=1)
    first, second = own_gpus.uuids
    async with running_supervisor(daemons):
        await until_phase(daemons, first, "ready")
        assert daemons.starts(first)[0]["CUDA_VISIBLE_DEVICES"] == first
        assert own_gpus.mode(0) == EXCLUSIVE_PROCESS
    assert not (daemons.root / second).exists()
    assert await until_phase(daemons, first, "stopped")
    assert (own_gpus.mode(0), own_gpus.mode(1)) == (PROHIBITED, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pods", "age_s", "mode"),
    [({}, 0, DEFAULT), ({}, 60, PROHIBITED), ({"a": FOREIGN_POD}, 0, DEFAULT)],
    ids=["no pods", "pods not known", "pods of another GPU"],
)
async def test_a_gpu_without_pods_is_released_at_the_end(own_gpus, daemons, pods, age_s, mode):
    """Any process may use it then; while pods may start again on it, none may."""
    grants = daemons.root / "grants.json"
    write_grants(grants, pods, clock=lambda: time.monotonic() - age_s)
    async with running_supervisor(daemons, mps_grants=str(grants), mps_silent_after_s=50):
        await until_phase(daemons, own_gpus.uuids[0], "ready")
    assert own_gpus.mode(0) == mode


@pytest.mark.slow
async def test_a_gpu_with_pods_stays_prohibited_at_the_end(own_gpus, daemons):
    """Its containers start again, and would find no daemon; the other GPU is released."""
    grants = daemons.root / "grants.json"
    first, second = own_gpus.uuids
    pods = {"a": replace(FOREIGN_POD, gpu_uuid=first)}
    write_grants(grants, pods, clock=time.monotonic)
    async with running_supervisor(daemons, mps_grants=str(grants), mps_silent_after_s=50):
        for uuid in (first, second):
            await until_phase(daemons, uuid, "ready")
    assert (own_gpus.mode(0), own_gpus.mode(1)) == (PROHIBITED, DEFAULT)


@pytest.mark.slow
async def test_gpu_without_an_answering_daemon_is_prohibited(own_gpus, daemons):
    """A process without a daemon would have no limits; other GPUs are not affected."""
    first, second = own_gpus.uuids
    daemons.fault(first, ends=True)
    async with running_supervisor(daemons):
        await until_phase(daemons, first, "unhealthy")
        await until_phase(daemons, second, "ready")
        assert (own_gpus.mode(0), own_gpus.mode(1)) == (PROHIBITED, EXCLUSIVE_PROCESS)
        daemons.fault(first)
        await until_phase(daemons, first, "ready")
        assert own_gpus.mode(0) == EXCLUSIVE_PROCESS


@pytest.mark.slow
async def test_only_permitted_gpus_are_touched(own_gpus, daemons, tmp_path):
    """Neither a daemon nor a compute mode without a permit; a withdrawn one ends the daemon."""
    permits = tmp_path / "permits.json"
    first, second = own_gpus.uuids
    async with running_supervisor(daemons, mps_permits=str(permits)):
        write_permits(permits, [first])
        await until_phase(daemons, first, "ready")
        assert not (daemons.root / second).exists()
        assert own_gpus.mode(1) == 0
        permits.unlink()  # decides nothing
        own_gpus.set_mode(0, 0)
        await until(lambda: own_gpus.mode(0) == EXCLUSIVE_PROCESS)
        assert daemons.state(first)["phase"] == "ready"
        write_permits(permits, [second])
        await until_phase(daemons, first, "stopped")
        await until_phase(daemons, second, "ready")


@pytest.mark.slow
async def test_changed_mode_is_restored(own_gpus, daemons):
    """The next reading restores it."""
    async with running_supervisor(daemons):
        await until_phase(daemons, own_gpus.uuids[0], "ready")
        own_gpus.set_mode(0, 0)
        await until(lambda: own_gpus.mode(0) == EXCLUSIVE_PROCESS)


@pytest.mark.slow
async def test_a_mode_is_set_at_once(own_gpus, daemons):
    """A daemon's start does not wait for the next reading."""
    async with running_supervisor(daemons, read_every_s=3600):
        await until_phase(daemons, own_gpus.uuids[0], "ready")


@pytest.mark.slow
async def test_compute_mode_can_be_left_unchanged(own_gpus, daemons):
    """A setting, for operators who set it themselves."""
    async with running_supervisor(daemons, mps_exclusive=False):
        await until_phase(daemons, own_gpus.uuids[0], "ready")
    assert own_gpus.mode(0) == 0


@pytest.mark.slow
async def test_failed_mode_change_makes_the_gpu_unhealthy(own_gpus, daemons):
    """Its daemon runs, but processes could avoid the limits."""
    own_gpus.set(0, mode_locked=1)
    first, second = own_gpus.uuids
    async with running_supervisor(daemons):
        assert "cannot be set: Insuff" in await until_phase(daemons, first, "unhealthy")
        await until_phase(daemons, second, "ready")
        own_gpus.set(0, mode_locked=0)
        await until_phase(daemons, first, "ready")


@pytest.mark.slow
async def test_daemons_end_while_nvml_hangs(own_gpus, daemons, monkeypatch):
    """A mode change that hangs does not delay the end."""
    monkeypatch.setattr(compute_modes, "_REQUEST_TIMEOUT_S", 0.2)
    first, second = own_gpus.uuids
    async with running_supervisor(daemons):
        for uuid in (first, second):
            await until_phase(daemons, uuid, "ready")
        own_gpus.set_all(hang=1)
    assert {daemons.state(uuid)["phase"] for uuid in (first, second)} == {"stopped"}
    own_gpus.set_all(hang=0)


@pytest.mark.slow
async def test_replaced_gpu(own_gpus, daemons):
    """The old GPU's daemon ends, and the new GPU gets one."""
    first, old = own_gpus.uuids
    async with running_supervisor(daemons):
        await until_phase(daemons, old, "ready")
        own_gpus.replace(1, a100(1, "new"))
        await until_phase(daemons, own_gpus.uuids[1], "ready")
        await until_phase(daemons, old, "stopped")
        own_gpus.set(1, mig=1)
        await until_phase(daemons, own_gpus.uuids[1], "stopped")
        assert daemons.state(first)["phase"] == "ready"


@pytest.mark.slow
async def test_daemons_survive_an_outage_of_nvml(own_gpus, daemons, logged):
    """Pods may run well while NVML does not answer."""
    first, second = own_gpus.uuids
    async with running_supervisor(daemons):
        for uuid in (first, second):
            await until_phase(daemons, uuid, "ready")
        pids = [daemons.pid(first), daemons.pid(second)]
        own_gpus.set_all(init=DRIVER_NOT_LOADED)
        await until(lambda: any(entry["event"] == "GPUs cannot be read" for entry in logged))
        own_gpus.set(1, error=15)
        own_gpus.set_all(init=0)
        at_s = daemons.state(first)["at_s"]
        await until(lambda: daemons.state(first)["at_s"] >= at_s + 1)
        assert [daemons.pid(first), daemons.pid(second)] == pids
        assert daemons.state(second)["phase"] == "ready"


@pytest.mark.slow
async def test_exchanged_driver_needs_a_new_process(own_gpus, daemons, monkeypatch):
    """All daemons are ended first."""
    monkeypatch.setattr(compute_modes, "_REQUEST_TIMEOUT_S", 0.2)
    first, _ = own_gpus.uuids
    supervising = asyncio.create_task(MpsSupervisor(daemons.settings()).run(asyncio.Event()))
    await until_phase(daemons, first, "ready")
    own_gpus.set_all(init=DRIVER_EXCHANGED)
    with pytest.raises(MpsSupervisorError, match="exchanged"):
        await supervising
    assert daemons.state(first)["phase"] == "stopped"


@pytest.mark.parametrize(
    ("nvml", "reason"), [({"init": DRIVER_NOT_LOADED}, "is not loaded"), ({"hang": 1}, "hangs")]
)
async def test_outage_of_nvml_needs_a_new_container(own_gpus, daemons, logged, nvml, reason):
    """This container may be older than the driver's libraries."""
    clock = Clock()
    own_gpus.set_all(**nvml)
    supervising = asyncio.create_task(
        MpsSupervisor(daemons.settings(), clock=clock).run(asyncio.Event())
    )
    if "hang" in nvml:  # a call that hangs reports nothing
        await asyncio.wait([supervising], timeout=0.5)
    else:
        await until(lambda: any(entry["event"] == "GPUs cannot be read" for entry in logged))
    assert not supervising.done()
    clock.now_s += 61
    with pytest.raises(MpsSupervisorError, match=f"no GPUs for 61 s: .*{reason}"):
        await supervising
    own_gpus.set_all(init=0, hang=0)


@pytest.mark.slow
async def test_outage_of_nvml_ends_no_daemon(own_gpus, daemons, logged, monkeypatch):
    """The daemons' clients may run well."""
    monkeypatch.setattr(compute_modes, "_REQUEST_TIMEOUT_S", 0.2)
    clock = Clock()
    stop = asyncio.Event()
    supervising = asyncio.create_task(MpsSupervisor(daemons.settings(), clock=clock).run(stop))
    for uuid in own_gpus.uuids:
        await until_phase(daemons, uuid, "ready")
    own_gpus.set_all(init=DRIVER_NOT_LOADED)
    await until(lambda: any(entry["event"] == "GPUs cannot be read" for entry in logged))
    clock.now_s += 61
    await asyncio.wait([supervising], timeout=1.5)  # longer than between two checks
    assert not supervising.done()
    stop.set()
    await supervising


@pytest.mark.slow
async def test_unwritable_state_is_logged_once(own_gpus, daemons, logged):
    """The agent sees that there is no recent state; the log says why."""
    first, second = own_gpus.uuids
    (daemons.root / second).touch()

    def logged_gpus():
        return [entry["gpu"] for entry in logged if "cannot be written" in entry["event"]]

    async with running_supervisor(daemons):
        await until(logged_gpus)
        await until_phase(daemons, first, "ready")
        at_s = daemons.state(first)["at_s"]
        await until(lambda: daemons.state(first)["at_s"] > at_s)
    assert logged_gpus() == [second]


@pytest.mark.slow
def test_command_runs_until_sigterm(gpus, daemons, tmp_path):
    """It runs all eight daemons at once; SIGTERM ends them, and the command with status 0."""
    environment = {**gpus.environment, **daemons.environment, "PATH": "/usr/bin:/bin"}
    environment["ESG_AGENT_MPS_OWN_SHM"] = "false"
    with (tmp_path / "log").open("wb") as log:
        supervisor = subprocess.Popen([ESG, "mps"], env=environment, stdout=log, stderr=log)

        def ready():
            assert supervisor.poll() is None, (tmp_path / "log").read_text()
            return {daemons.state(uuid).get("phase") for uuid in gpus.uuids} == {"ready"}

        try:
            wait_until(ready, what=f"all daemons ready, see {log.name}", timeout_s=300)
            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(300) == 0
        finally:
            supervisor.kill()
            supervisor.wait()
    assert {daemons.state(uuid)["phase"] for uuid in gpus.uuids} == {"stopped"}
    assert [list((daemons.root / uuid / "pipe").iterdir()) for uuid in gpus.uuids] == [[]] * 8


@pytest.mark.slow
def test_command_reports_a_fatal_error(gpus, daemons):
    """One line, with status 1: the kubelet creates a new container."""
    gpus.set_all(init=DRIVER_EXCHANGED)
    environment = {**gpus.environment, **daemons.environment}
    ended = subprocess.run(
        [ESG, "mps"], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: the driver was exchanged")
