"""Our extender as a test runs it: the command that users run, against the test bed."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from tests.testbed.control_plane import ControlPlane
from tests.testbed.processes import Process

START_TIMEOUT_S = 180.0
"""The first start of all compiles the search's kernels; later ones take a few seconds."""


def start_extender(
    plane: ControlPlane,
    *,
    port: int,
    kubeconfig: Path | None = None,
    name: str = "extender",
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start `esg serve`; returns when its /readyz says 200. It ends with the control plane.

    To see it fail and recover: `kill()` what is returned, `start()` it, `wait_extender()`.

    Args:
        plane: to whose API server it talks.
        port: of 127.0.0.1; see `processes.free_port`.
        kubeconfig: who it is; None makes it an administrator.
        name: of its log.
        arguments: further ones.
        environment: settings on top of the inherited ones.

    Raises:
        StartFailedError: with the end of its log.
    """
    command = [
        str(Path(sys.executable).with_name("esg")),
        "serve",
        f"--kubeconfig={kubeconfig or plane.kubeconfig}",
        f"--port={port}",
        *arguments,
    ]
    process = plane.process(name, command, environment=environment)
    process.start()
    wait_extender(process, port=port)
    return process


def wait_extender(process: Process, *, port: int) -> None:
    """Return when the extender started as `process` is ready.

    Raises:
        StartFailedError: with the end of its log.
    """
    process.wait_ready(lambda: _is_ready(port), timeout_s=START_TIMEOUT_S)


def _is_ready(port: int) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == httpx.codes.OK
