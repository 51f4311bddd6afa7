"""Programs as processes: none outlives the one that started it."""

import os
import select
import signal
import subprocess
import sys

import pytest

from tests.testbed import REPOSITORY

LIMIT_S = 60.0
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
