"""The gateway's process in the end-to-end tests, with the rights of deploy/gateway-rbac.yaml."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.testbed import REPOSITORY
from tests.testbed.control_plane import ControlPlane
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

USER = "esg-gateway"
RBAC = REPOSITORY / "deploy" / "gateway-rbac.yaml"


@contextmanager
def running(process: Process, url: str) -> Iterator[Process]:
    """Run a process from its readiness on."""
    process.start()
    process.wait_ready(lambda: answers(url), timeout_s=180)
    yield process
    process.stop()


def answers(url: str) -> bool:
    """Tell if a GET of this address succeeds."""
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def gateway(
    plane: ControlPlane,
    port: int,
    *,
    name: str = "gateway",
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Create the gateway's process, with the rights of deploy/gateway-rbac.yaml only."""
    program = str(Path(sys.executable).with_name("esg"))
    command = [program, "gateway", f"--kubeconfig={plane.kubeconfig_for(USER)}"]
    settings = {
        "ESG_GATEWAY_HOST": "127.0.0.1",
        "ESG_GATEWAY_PORT": str(port),
        "ESG_GATEWAY_PODS": "true",
        "ESG_GATEWAY_TRUST_ARRIVAL": "true",  # those of the load's schedule
        "ESG_SCHEDULER_NAME": "esg-scheduler",
        "ESG_HEALTH_PORT": str(free_port()),
        **(environment or {}),
    }
    return plane.process(name, command, environment=settings)
