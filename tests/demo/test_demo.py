"""``esg demo``, the first command that a person runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from scheduler.cli.commands import app
from tests.command_line import esg
from tests.raw_documents import PROFILE, WORKFLOW, changed
from workbench.demo.results import RunResults
from workbench.demo.summary import SLICES, PodUsage, summarise

Start = Callable[..., subprocess.Popen[str]]
ESG = str(Path(sys.executable).with_name("esg"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``esg demo`` outside the repository, as where the wheel is installed.

    What still runs at the test's end is interrupted, as by Ctrl-C.
    """
    with ExitStack() as stack:

        def started(*arguments: str) -> subprocess.Popen[str]:
            demo = subprocess.Popen(
                [ESG, "demo", *arguments],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(demo)
            stack.callback(demo.send_signal, signal.SIGINT)
            return demo

        yield started


def children_of(demo: subprocess.Popen[str]) -> dict[str, int]:
    """The processes that the demo started, by the words of their command line."""
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")
    pids = {}
    for pid in children.read_text(encoding="ascii").split():
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
        pids |= dict.fromkeys(words, int(pid))
    return pids


def wait_for_requests(demo: subprocess.Popen[str]) -> None:
    """Read the output until the requests begin."""
    assert demo.stdout is not None
    while "requests for" not in (line := demo.stdout.readline()):
        assert line, "the demo ended early"


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("share", ["reserved", "pooled"])
def test_a_short_run_is_consistent(start, share):
    """Every request is answered, with the right values, by pods that the gateway creates."""
    demo = start(f"--share={share}", "--warm-up=6", "--seconds=4", "--cool-down=0", "--json")
    out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, err
    summary = json.loads(out)
    total = summary["total"]
    assert 59 <= total["requests"] <= 100  # one every 40 to 67 ms
    for part in (summary["warm_up"], total):
        assert part["answered"] == part["requests"] > 0
        assert (part["wrong"], part["refusals"]) == (0, {})
    for field in ("requests", "answered", "hits"):
        assert total[field] == sum(workflow[field] for workflow in summary["workflows"])
    assert 1 <= summary["rows_per_batch"] <= 16
    assert 0 < summary["gpu_busy_ratio"] < summary["gpu_held_ratio"] <= 1
    assert summary["dollars_per_1000"] > 0
    assert summary["paid_over_bound"] > 1
    for program in ("extender", "gateway"):
        assert 0 < summary[f"{program}_core_wait_ratio"] < 1
    present = sum(kind["pods"] for kind in summary["pods"] if kind["state"] != "waiting")
    assert summary["pods_started"] - summary["pods_ended"] == present
    assert present > 0
    assert any(kind["function"] == SLICES for kind in summary["pods"]) == (share == "pooled")


@pytest.mark.slow
@pytest.mark.parametrize(("word", "name"), [("serve", "the extender"), ("gateway", "the gateway")])
def test_the_death_of_a_program_ends_the_demo(start, word, name):
    """The message names it; the status is not 0."""
    demo = start("--seconds=60")
    wait_for_requests(demo)
    os.kill(children_of(demo)[word], signal.SIGKILL)
    _, err = demo.communicate(timeout=300)
    assert demo.returncode == 1
    assert f"{name} ended by itself with status -9" in err


@pytest.mark.slow
def test_an_interrupt_stops_all_programs(start):
    """Ctrl-C leaves nothing behind."""
    demo = start("--seconds=60")
    wait_for_requests(demo)
    pids = set(children_of(demo).values())
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert "Traceback" not in err
    assert len(pids) >= 3  # extender, gateway and the player of model servers
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize("content", ["kind: Node\n", "- [", ""])
def test_unusable_nodes_are_told(tmp_path, content):
    """A file without Node documents is refused by its name."""
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(app, ["demo", f"--nodes={nodes}"])
    assert done.exit_code == 2
    assert "nodes.yaml" in done.stderr.replace("\n", "").replace("│", "").replace(" ", "")


H100 = PROFILE["spec"]["gpus"][0] | {"model": "H100"}


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([WORKFLOW], "stage 'a' runs 'f', which has no FunctionProfile"),
        ([WORKFLOW, changed(PROFILE, "spec.gpus.0", H100)], "function f is profiled on H100, not"),
    ],
)
def test_functions_that_can_never_run_are_told(tmp_path, documents, message):
    """They would wait until the end of the run."""
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    done = esg("demo", f"--profiles={file}")
    assert done.exit_code == 1
    assert message in done.stderr
    assert "documents.yaml:" in done.stderr


def test_a_run_without_an_answer_fails(monkeypatch):
    """The summary is printed all the same."""

    async def play(config, _console):
        runs = {"runs": 0.0, "pods": 0.0, "busy_s": 0.0, "late_p99_ms": 0.0}
        results = RunResults([("w", 100.0, 1)], warm_up_s=config.warm_up_s)
        return summarise(results, PodUsage(config.prices), runs, gpus=config.gpus, seconds=1.0)

    monkeypatch.setattr("workbench.commands.demo.play", play)
    done = esg("demo", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["total"]["answered"] == 0
    assert "no request was answered" in done.stderr
