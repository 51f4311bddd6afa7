"""Programs as processes: their ports, their ends, and their waits for a core."""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from subprocess import PIPE

import pytest

from tests.testbed import REPOSITORY
from workbench.cluster.process import PORTS, core_wait_s, free_port

LIMIT_S = 60.0
BUSY_S = 0.05  # of CPU time
OWNER = """
import asyncio
from workbench.cluster.process import programs

async def main():
    async with programs() as running:
        child = await running.start("child", ["sleep", "600"])
        print(child.process.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_children_of_an_ended_owner_end(number):
    """A signal that leaves the owner no time for its own end leaves no process behind."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as owner:
        child = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(number)
    try:
        assert select.select([child], [], [], LIMIT_S)[0]
    finally:
        os.close(child)


@pytest.fixture
def one_core():
    """Only one core for this thread and its children."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.slow
def test_a_busy_process_waits_for_the_core_that_it_shares(one_core):
    """Beside three others it waits longer than it runs; one that is stopped does not wait."""
    with ExitStack() as stack:

        def started(script: str) -> subprocess.Popen:
            process = stack.enter_context(subprocess.Popen(["sh", "-c", script], stdout=PIPE))
            stack.callback(process.kill)
            return process

        stopped = started("kill -STOP $$").pid
        os.waitpid(stopped, os.WUNTRACED)
        for _ in range(3):
            started("echo; while :; do :; done").stdout.readline()
        pids = os.getpid(), stopped
        begins_s = [core_wait_s(pid) for pid in pids]
        end_s = time.thread_time() + BUSY_S
        while time.thread_time() < end_s:
            pass
        own_s, stopped_s = (core_wait_s(p) - s for p, s in zip(pids, begins_s, strict=True))
    assert own_s > 1.5 * BUSY_S
    assert stopped_s == 0


@pytest.mark.parametrize("schedstat", [None, "0 0 0\n"])
def test_a_wait_that_the_kernel_does_not_count_is_not_known(tmp_path, schedstat):
    """It has no file of it, or one of zeros."""
    (tmp_path / "1").mkdir()
    if schedstat is not None:
        (tmp_path / "1" / "schedstat").write_text(schedstat)
    assert core_wait_s(1, tmp_path) is None


def test_no_two_calls_return_one_port():
    """A program listens some time after its port was chosen."""
    ports = [free_port() for _ in range(300)]
    assert len(set(ports)) == len(ports)
    assert set(ports) <= set(PORTS)
