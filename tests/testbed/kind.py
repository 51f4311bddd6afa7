"""Run commands with a kind cluster, which is created before and deleted after them.

    python -m tests.testbed.kind .venv/bin/pytest tests/node
    python -m tests.testbed.kind --build    # only what needs a network: programs, base, image

The commands find the cluster by `ESG_TEST_KIND` (its name) and `ESG_TEST_KUBECONFIG`. Ctrl-C, a
failure and SIGTERM delete it, too. Without Docker one line says what is missing.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.testbed import docker, images, kubernetes_release, node_image
from tests.testbed.binaries import GoMissingError
from tests.testbed.build_steps import BuildFailedError, say
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from tests.testbed.kind_cluster import kind_cluster
from tests.testbed.machine_requirements import IMAGE_VARIABLE, missing_for_kind
from tests.testbed.processes import StartFailedError

NAME_VARIABLE = "ESG_TEST_KIND"
INTERRUPTED_TIMEOUT_S = 120.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(command: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    if missing := missing_for_kind():
        say(f"{missing}; the suites on kind do not run")
        return 1
    try:
        build_with_network()
        if command == ["--build"]:
            return 0
        docker.enter_namespaces([sys.executable, *sys.orig_argv[1:]])
        for number in _SIGNALS:
            signal.signal(number, _stop)
        return _run(command)
    except (GoMissingError, BuildFailedError, StartFailedError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the kind cluster is deleted")
        return 130


def build_with_network() -> None:
    """Build what downloads something; a daemon of the test bed has no network."""
    kubernetes_release.build(["kind", "kube-scheduler", "kwok", "helm", "nvidia-nri"])
    if not os.environ.get(IMAGE_VARIABLE):
        kubernetes_release.build(node_image.PROGRAMS)
        node_image.base_archive()
    images.project_image()
    images.mlserver_image()


def _run(command: Sequence[str]) -> int:
    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="esg-kind-") as folder,
        docker.daemon(),
        kind_cluster(Path(folder)) as cluster,
    ):
        say(f"kind cluster {cluster.name} is up after {time.monotonic() - began_s:.0f} s")
        environment = {
            **os.environ,
            NAME_VARIABLE: cluster.name,
            EXTERNAL_KUBECONFIG: str(cluster.kubeconfig),
        }
        with subprocess.Popen(command, env=environment) as running:
            try:
                status = running.wait()
            except KeyboardInterrupt as interrupt:
                if signal.SIGTERM in interrupt.args:  # Ctrl-C reaches the command, too
                    running.send_signal(signal.SIGINT)
                raise
            finally:
                for number in _SIGNALS:  # a second Ctrl-C must not leave half of it
                    signal.signal(number, signal.SIG_IGN)
                _end(running)
        duration_s = time.monotonic() - began_s
        say(f"1 kind cluster created; the command ended with {status}; {duration_s:.0f} s")
    say("kind cluster deleted")
    return status


def _end(running: subprocess.Popen[bytes]) -> None:
    """Let an interrupted command write its results, and kill it if it does not end."""
    try:
        running.wait(INTERRUPTED_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        running.kill()


def _stop(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
