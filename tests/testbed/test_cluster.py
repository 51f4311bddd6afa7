"""`make cluster` from its start to Ctrl-C, with a pod between."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.testbed import REPOSITORY
from tests.testbed.api import Api, tls_context, wait_until
from tests.testbed.fixtures import needs_go
from tests.testbed.pki import Certificate

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
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(workdir) in line:
            lines.append(line)
    return lines


def admin(workdir: Path) -> Api:
    """Create a client from the files in the command's folder only."""
    config = yaml.safe_load((workdir / "admin.kubeconfig").read_text(encoding="utf-8"))
    pki = workdir / "pki"
    certificate = Certificate(certificate=pki / "admin.crt", key=pki / "admin.key")
    url: str = config["clusters"][0]["cluster"]["server"]
    return Api(url, tls_context(pki / "ca.crt", certificate))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_cluster_runs_pods_and_stops_cleanly(
    running: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    """The sample pod runs; after Ctrl-C no process remains."""
    workdir = tmp_path / "cluster"
    api = admin(workdir)
    pod = api.create(yaml.safe_load((workdir / "sample-pod.yaml").read_text(encoding="utf-8")))
    wait_until(lambda: api.get(api.path(pod))["status"]["phase"] == "Running", what="running")
    api.close()

    running.send_signal(number)

    assert running.wait(120) == 0
    assert processes_with(workdir) == []
    assert (tmp_path / "output").read_text(encoding="utf-8").endswith("test bed: stopped\n")
