"""Slowdown by a neighbour: ``esg profiles measure --beside`` on played servers that share a GPU."""

import asyncio
import multiprocessing
import re
from types import SimpleNamespace

import pytest
import yaml

from tests.command_line import esg
from tests.profiles.harness import TimedServer, in_thread
from workbench.profiles.interference import NeighbourError, Slowdown, neighbour_batches

OPTIONS = (
    "--model", "encoder", "--gpu-model", "NVIDIA A100-SXM4-80GB", "--memory-mib", 900,
    "--gpu-percent", 50, "--runs", 10, "--runs-max", 10, "--batches", "2", "--warm-up", 1,
)  # fmt: skip


SLOWDOWN = 3.0
"""Time of a run over its time alone, while the other server runs."""


class SlowedServer(TimedServer):
    """A server whose runs take longer while the other one runs."""

    neighbour = None
    running = 0

    async def spend_time(self, rows):
        slow = SLOWDOWN if self.neighbour and self.neighbour.running else 1.0
        self.running += 1
        await asyncio.sleep(slow * self.run_ms / 1000)
        self.running -= 1


@pytest.fixture
def pair():
    """Two servers on one played GPU; yields both, which serve."""
    first, second = SlowedServer(run_ms=60), SlowedServer(run_ms=120)
    first.neighbour = second
    with in_thread(first.serving()), in_thread(second.serving()):
        yield first, second


@pytest.mark.parametrize(("beside_ms", "ratio"), [(45.0, 1.0), (29.0, 0.0)])
def test_the_slowdown_is_that_of_a_neighbour_with_the_whole_gpu(beside_ms, ratio):
    """Half as long again beside 50 % is twice as long; noise is no gain."""
    alone, beside = (SimpleNamespace(median_ms=time_ms) for time_ms in (30.0, beside_ms))
    slowdown = Slowdown(alone=alone, beside=beside, neighbour_percent=50)
    assert slowdown.interference_ratio == pytest.approx(ratio)


def url(server):
    return f"http://127.0.0.1:{server.port}"


@pytest.mark.slow
def test_the_slowdown_is_that_beside_the_neighbour(pair):
    """Three times as long beside a neighbour of 50 % is a ratio of 4 for a whole GPU.

    The machine's own time for a request is in both times, and small next to them.
    """
    first, second = pair
    beside = ("--beside", f"{url(second)}/segment", "--beside-percent", 50)
    done = esg("profiles", "measure", "--url", url(first), *OPTIONS, *beside)
    assert done.exit_code == 0, done.output
    match = re.search(r"interference: {encoder: {segment: ([\d.]+)}}", done.stderr)
    assert float(match[1]) == pytest.approx((SLOWDOWN - 1) * 100 / 50, rel=0.5)
    assert "beside segment with 50 %: median" in done.stderr


def test_a_neighbour_that_does_not_answer(pair):
    """An error of the neighbour ends the command with its reason, after the profile."""
    first, _ = pair
    beside = ("--beside", "http://127.0.0.1:1/segment")
    done = esg("profiles", "measure", "--url", url(first), *OPTIONS, *beside)
    assert done.exit_code == 1
    assert "127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr
    assert yaml.safe_load(done.stdout)["kind"] == "FunctionProfile"


async def connect_to_one_batch():
    """Return a run that fails after its first batch."""
    answers = ["first batch"]

    async def run():
        if not answers:
            raise RuntimeError("out of memory")
        return answers.pop()

    return run


def test_a_neighbour_that_fails_after_its_first_batch():
    """Times beside a neighbour that runs no batches any more are no slowdown."""

    def wait_for_its_end():
        with neighbour_batches(connect_to_one_batch):
            for process in multiprocessing.active_children():
                process.join()

    with pytest.raises(NeighbourError, match="out of memory"):
        wait_for_its_end()


def test_the_form_of_a_neighbour(pair):
    """A URL without a model or port is refused before anything is measured."""
    first, _ = pair
    done = esg("profiles", "measure", "--url", url(first), *OPTIONS, "--beside", "segment")
    assert done.exit_code == 2
    assert "/MODEL" in done.stderr
    assert not first.runs
