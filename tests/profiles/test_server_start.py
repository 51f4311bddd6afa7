"""``esg profiles measure --start-command``: the cold start of a server that the command starts."""

import asyncio
import json
import os
import signal
import sys
from contextlib import closing
from socket import create_connection

import pytest
import yaml

from tests.command_line import esg
from tests.profiles.harness import http_server
from tests.testbed.mlserver_process import MODEL_SETTINGS, MODELS, MlServer, needs_mlserver
from tests.testbed.model_server_process import MODEL
from workbench.cluster.process import free_port
from workbench.profiles.server_start import started_server

OPTIONS = (
    "--gpu-model", "NVIDIA A100-SXM4-80GB", "--memory-mib", 900, "--batches", 1,
    "--runs", 3, "--warm-up", 1, "--limit-s", 0.01,
)  # fmt: skip
SLOW_CLASSIFIER = """
import asyncio

from onnx_classifier import OnnxClassifier


class SlowClassifier(OnnxClassifier):
    async def load(self):
        await asyncio.sleep(1)
        return await super().load()
"""
pytestmark = pytest.mark.usefixtures("loopback_http")


def measure(port, command, *options, model="played"):
    url = ("--url", f"http://127.0.0.1:{port}", "--model", model)
    return esg("profiles", "measure", *url, *OPTIONS, "--start-command", command, *options)


def played(port):
    return f"{sys.executable} -m workbench.cluster.model_server --port {port} --run-ms 1"


def answers(port):
    try:
        with closing(create_connection(("127.0.0.1", port))):
            return True
    except OSError:
        return False


@pytest.mark.slow
def test_the_cold_start_is_that_of_the_command():
    """It includes all until the first batch; the server ends with the measurement."""
    port = free_port()
    done = measure(port, f"sleep 0.5; {played(port)}")
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.stdout)["spec"]["coldStartMs"] > 500
    assert "ms from the command to the first batch" in done.stderr
    assert not answers(port)


@pytest.mark.slow
def test_the_cold_start_of_batches_that_were_measured(tmp_path):
    """With all batches in the file of points, the start is measured, and added to the profile."""
    out = tmp_path / "profile.yaml"
    precise = ("--runs", 80, "--error-percent", 100, "--limit-s", 60, "--out", out)
    with http_server(run_ms=1) as server:
        url = ("--url", f"http://127.0.0.1:{server.port}", "--model", "played")
        done = esg("profiles", "measure", *url, *OPTIONS, *precise)
    assert done.exit_code == 0, done.output
    port = free_port()
    done = measure(port, played(port), *precise)
    assert done.exit_code == 0, done.output
    assert "1 of 1 batches are in" in done.stderr
    profile = yaml.safe_load(out.read_text(encoding="utf-8"))
    assert profile["spec"]["coldStartMs"] > 0
    assert len(profile["spec"]["gpus"][0]["configurations"]) == 1


@pytest.mark.slow
def test_a_server_that_ignores_the_signal_is_killed(monkeypatch):
    """The shell of the command ends at once, and what it started does not."""
    monkeypatch.setattr("workbench.profiles.server_start._STOP_S", 0.5)
    port = free_port()
    done = measure(port, f"trap '' TERM; {played(port)} & trap - TERM; wait")
    assert done.exit_code == 0, done.output
    assert not answers(port)


async def test_a_second_ctrl_c_leaves_no_server(tmp_path):
    """The first one waits for the server's end, and it ignores the signal."""
    note = tmp_path / "pid"
    begun = asyncio.Event()

    async def is_ready():
        return note.exists() and note.read_text(encoding="ascii").endswith("\n")

    async def serve():
        command = f"trap '' TERM; echo $$ > {note}; while :; do sleep 0.05; done"
        async with started_server(command, is_ready, start_s=60.0):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.wait_for(begun.wait(), 60.0)
    server = os.pidfd_open(int(note.read_text(encoding="ascii")))
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20.0)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(server, ended.set)
    await asyncio.wait_for(ended.wait(), 20.0)
    asyncio.get_running_loop().remove_reader(server)
    os.close(server)


@pytest.mark.slow
def test_a_command_that_returns_leaves_its_server(tmp_path):
    """A command like `docker start` is not what runs the server."""
    port, pid = free_port(), tmp_path / "pid"
    done = measure(port, f"{played(port)} & echo $! > {pid}", "--cold-start-ms", 7)
    try:
        assert done.exit_code == 0, done.output
        assert answers(port)
        assert yaml.safe_load(done.stdout)["spec"]["coldStartMs"] == 7
    finally:
        os.kill(int(pid.read_text(encoding="utf-8")), signal.SIGTERM)


def test_a_server_that_runs_is_not_disturbed():
    """Its start cannot be measured; the command is not run."""
    with http_server() as server:
        done = measure(server.port, "exit 3")
        assert done.exit_code == 1
        assert "a server answers before the command of --start-command; stop it" in done.stderr
        assert not server.runs


def test_a_command_that_fails():
    """Its status is told; one that starts another server takes too long."""
    done = measure(free_port(), "exit 3")
    assert done.exit_code == 1
    assert "'exit 3' ended with status 3; correct --start-command" in done.stderr
    done = measure(free_port(), "true", "--start-s", 1)
    assert done.exit_code == 1
    assert "the model is not ready 1 s after 'true'" in done.stderr


@pytest.mark.slow
@pytest.mark.nightly
@needs_mlserver
def test_a_real_mlserver(tmp_path):
    """The load of its model is in its cold start."""
    server = MlServer(tmp_path)
    try:
        (tmp_path / "slow_classifier.py").write_text(SLOW_CLASSIFIER, encoding="utf-8")
        settings = tmp_path / MODEL / "model-settings.json"
        slow = {**MODEL_SETTINGS, "implementation": "slow_classifier.SlowClassifier"}
        settings.write_text(json.dumps(slow), encoding="utf-8")
        command = " ".join(server.process.command)
        modules = f"PYTHONPATH={MODELS}:{tmp_path}"
        done = measure(server.http_port, f"{modules} exec {command}", model=MODEL)
        assert done.exit_code == 0, done.output
        assert yaml.safe_load(done.stdout)["spec"]["coldStartMs"] > 1000
    finally:
        server.stop()
