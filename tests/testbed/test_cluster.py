"""`make cluster` from its start to Ctrl-C, with a pod between."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from psutil import process_iter

from tests.testbed import REPOSITORY
from tests.testbed.api import wait_until
from tests.testbed.external_cluster import ExternalCluster
from tests.testbed.fixtures import needs_go

pytestmark = [pytest.mark.e2e, needs_go]

START_S = 180


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The running command with two nodes and no extender; its output is in `<tmp_path>/output`."""
    command = [sys.executable, "-m", "tests.testbed.cluster", "--nodes=2", "--no-extender"]
    workdir = f"--workdir={tmp_path / 'cluster'}"
    output = tmp_path / "output"
    with (
        output.open("w", encoding="utf-8") as log,
        subprocess.Popen([*command, workdir], stderr=log, text=True, cwd=REPOSITORY) as process,
    ):
        wait_until(
            lambda: process.poll() is not None or "Ctrl-C" in output.read_text(encoding="utf-8"),
            what="running",
            timeout_s=START_S,
        )
        yield process
        process.terminate()


def processes_with(workdir: Path) -> list[str]:
    """Return the command lines of processes that name the folder."""
    lines = [" ".join(process.info["cmdline"] or ()) for process in process_iter(["cmdline"])]
    return [line for line in lines if str(workdir) in line]


def test_the_cluster_runs_pods_and_stops_cleanly(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The sample pod runs; after Ctrl-C no process remains."""
    workdir = tmp_path / "cluster"
    client = ExternalCluster(tmp_path / "client", workdir / "admin.kubeconfig")
    api = client.api
    pod = api.create(yaml.safe_load((workdir / "sample-pod.yaml").read_text(encoding="utf-8")))
    wait_until(lambda: api.get(api.path(pod))["status"]["phase"] == "Running", what="running")
    client.stop()
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == 0
    assert processes_with(workdir) == []
    assert (tmp_path / "output").read_text(encoding="utf-8").endswith("test bed: stopped\n")
