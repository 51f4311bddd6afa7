"""The extender of the tests: the command that users run, against the test bed."""

import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import httpx

from tests.testbed.api import Json
from tests.testbed.control_plane import ControlPlane
from tests.testbed.processes import Process

START_TIMEOUT_S = 180.0
"""The first start compiles the search's kernels; later starts take a few seconds."""
ESG = str(Path(sys.executable).with_name("esg"))
"""Path of the command."""


def start_extender(
    plane: ControlPlane,
    *,
    port: int,
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start `esg serve`; return when its /readyz answers 200. It ends with the control plane.

    To test a restart: `kill()` the process, `start()` it, `wait_extender()`.

    Args:
        plane: the control plane of its API server.
        port: its port on 127.0.0.1; see `processes.free_port`.
        kubeconfig: its identity; None: an administrator.
        environment: settings in addition to the inherited environment.

    Raises:
        StartFailedError: it did not become ready; the message ends with its log's tail.
    """
    settings = {"ESG_OWNER_LEASE_NAMESPACE": "kube-system", **(environment or {})}
    command = ["serve", f"--kubeconfig={kubeconfig or plane.kubeconfig}", f"--port={port}"]
    return _start(plane.process("extender", [ESG, *command], environment=settings), port)


def start_webhook(
    plane: ControlPlane, *, port: int, kubeconfig: Path, environment: Mapping[str, str]
) -> Process:
    """Start `esg webhook` with this health port, in the same way."""
    command = [ESG, "webhook", f"--kubeconfig={kubeconfig}"]
    return _start(plane.process("webhook", command, environment=environment), port)


def loopback_registration(plane: ControlPlane, registration: Json, port: int) -> Json:
    """Return the registration of a webhook that runs here, with a certificate of the test bed.

    Args:
        plane: control plane of the API server that calls the webhook.
        registration: MutatingWebhookConfiguration, which names a Service.
        port: port of the webhook on 127.0.0.1.
    """
    client = {
        "url": f"https://127.0.0.1:{port}/mutate",
        "caBundle": b64encode(plane.ca.read_bytes()).decode(),
    }
    hooks = [{**webhook, "clientConfig": client} for webhook in registration["webhooks"]]
    return {**registration, "webhooks": hooks}


def wait_extender(process: Process, *, port: int) -> None:
    """Return when the extender in `process` is ready.

    Raises:
        StartFailedError: it did not become ready; the message ends with its log's tail.
    """
    process.wait_ready(lambda: _is_ready(port), timeout_s=START_TIMEOUT_S)


def _start(process: Process, port: int) -> Process:
    process.start()
    wait_extender(process, port=port)
    return process


def _is_ready(port: int) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == httpx.codes.OK
