"""``esg demo``, the first command that a person runs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.cli import app
from tests.signals import hear_ctrl_c
from tests.testbed import REPOSITORY

Start = Callable[..., subprocess.Popen[str]]
ESG = str(Path(sys.executable).with_name("esg"))


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts ``esg demo``; what still runs at the test's end is interrupted, as by Ctrl-C."""
    with ExitStack() as stack:

        def started(*arguments: str) -> subprocess.Popen[str]:
            demo = subprocess.Popen(
                [ESG, "demo", *arguments],
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - no other thread forks
            )
            stack.enter_context(demo)
            stack.callback(demo.send_signal, signal.SIGINT)
            return demo

        yield started


def service_of(demo: subprocess.Popen[str]) -> int:
    """The process that the demo started."""
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if pids := children.read_text(encoding="ascii").split():
            return int(pids[0])
        time.sleep(0.05)
    raise AssertionError("the demo started no process")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_a_short_run_is_consistent(start):
    """Every request that arrives is placed and ends, and the service's own figures agree."""
    demo = start("--seconds=3", "--load=light", "--json")
    out, err = demo.communicate(timeout=60)
    assert demo.returncode == 0, err
    summary = json.loads(out)
    total = summary["total"]
    assert 40 <= total["arrived"] <= 80  # one every 40 to 67 ms
    assert total["done"] == total["arrived"]
    assert total["arrived"] == sum(workflow["arrived"] for workflow in summary["workflows"])
    assert total["hits"] == sum(workflow["hits"] for workflow in summary["workflows"])
    assert total["done"] - total["hits"] == summary["misses"]["count"]
    assert (
        summary["pods"] >= 3 * total["done"] / 16
    )  # three stages at least, and batches of 16 at most
    assert 1 <= summary["mean_batch_size"] <= 16
    assert 0 < summary["gpu_utilisation_ratio"] <= 1
    assert total["cost_per_1000"] > 0
    assert summary["comparison"]["agree"], summary["comparison"]


@pytest.mark.slow
def test_the_death_of_the_service_ends_the_demo(start):
    """It is told, with a status that is not 0, at once."""
    demo = start("--seconds=60")
    service = service_of(demo)
    assert demo.stdout is not None
    while "ready" not in demo.stdout.readline():
        pass
    os.kill(service, signal.SIGKILL)
    _, err = demo.communicate(timeout=20)
    assert demo.returncode == 1
    assert "the service ended by itself with status -9" in err


@pytest.mark.slow
def test_an_interrupt_stops_the_service(start):
    """Ctrl-C leaves nothing behind."""
    demo = start("--seconds=60")
    service = service_of(demo)
    assert demo.stdout is not None
    while "ready" not in demo.stdout.readline():
        pass
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=20)
    assert demo.returncode == 130
    assert "Traceback" not in err
    assert is_gone(service)


@pytest.mark.parametrize("content", ["kind: Node\n", "- [", ""])
def test_unusable_nodes_are_told(tmp_path, content):
    """A file without Node documents is refused by its name."""
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(app, ["demo", f"--nodes={nodes}"])
    assert done.exit_code == 2
    assert "nodes.yaml" in done.stderr.replace("\n", "").replace("│", "").replace(" ", "")
