"""The end of a GPU's MPS daemon: asked for, forced, or with its supervisor."""

import asyncio
import os
import sys

import pytest

from scheduler.agent.mps import mount_namespace
from scheduler.agent.mps.control import environment
from tests.agent.harness import until
from tests.agent.running_daemon import UUID, control_of, first_answer, is_alive, running_daemon


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
