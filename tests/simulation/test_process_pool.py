"""Processes of a pool and the process that started them."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from workbench.series.process_pool import process_pool

if __name__ == "__main__":
    with process_pool(2, start_method=sys.argv[1]) as pool:
        futures = [pool.submit(time.sleep, 600) for _ in range(2)]
        print(*pool._processes, flush=True)
"""
ENDS_WITHIN_S = 60


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_killed_owner_leaves_no_process_behind(start_method, tmp_path):
    """Busy processes of a pool end when the process that started them is killed."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        [sys.executable, str(file), start_method],
        stdout=subprocess.PIPE, text=True, env=environment,
    ) as owner:  # fmt: skip
        workers = [os.pidfd_open(int(pid)) for pid in owner.stdout.readline().split()]
        owner.kill()
    try:
        assert len(workers) == 2
        for worker in workers:
            assert select.select([worker], [], [], ENDS_WITHIN_S)[0], "it goes on"
    finally:
        for worker in workers:
            os.close(worker)
