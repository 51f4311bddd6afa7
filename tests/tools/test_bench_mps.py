"""`bench.mps` with a driver of the tests: its processes, its arbiter and its answer."""

import os
import re
import subprocess
import sys
from threading import Lock

import pytest

from bench.mps import together_ms
from tests.agent.fakes import compiled

RATIOS = r"mps: 3 x 50 %  idle_ratio: [\d.]+  full_p95_ratio: [\d.]+  beyond_ratio: [\d.]+\n"


class CountingClient:
    """A client that counts how many run with it."""

    lock, running, largest = Lock(), 0, 0

    def run_ms(self, blocks, rounds):
        with self.lock:
            CountingClient.running += 1
            CountingClient.largest = max(self.largest, self.running)
        with self.lock:
            CountingClient.running -= 1
        return float(blocks * rounds)


def measured(environ, *arguments):
    command = [sys.executable, "-m", "bench.mps", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_no_more_batches_run_at_once_than_the_arbiter_allows():
    """Every client runs all its batches."""
    times_ms = together_ms([CountingClient() for _ in range(6)], 2, 50, (2, 3))
    assert times_ms == [6.0] * 300
    assert CountingClient.largest <= 2


def test_the_last_line_has_the_three_ratios(tmp_path):
    """The status says if all are within their bounds, which the times of this driver decide."""
    libraries = str(compiled(tmp_path))
    environ = os.environ | {"LD_LIBRARY_PATH": libraries, "FAKE_CUDA": "0 32 1000000"}
    done = measured(environ, "--processes", "3", "--percent", "50", "--runs", "3")
    assert done.returncode in {0, 1}, done.stderr
    assert re.fullmatch(RATIOS, done.stdout.splitlines(keepends=True)[-1])


@pytest.mark.slow
@pytest.mark.parametrize("status", [100, 805])
def test_a_driver_that_fails_says_which_call(tmp_path, status):
    """An error of the driver, such as a missing MPS daemon, is no measurement."""
    libraries = str(compiled(tmp_path))
    environ = os.environ | {"LD_LIBRARY_PATH": libraries, "FAKE_CUDA": f"{status} 32 1000000"}
    done = measured(environ, "--processes", "2")
    assert done.returncode == 2
    assert f"not measured: cuInit failed with error {status}" in done.stderr
