"""The fixtures of the cluster room's tests; the control plane is the test bed's."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from scheduler.cluster.api import Api, connect
from tests.cluster.api_server import ApiServer
from tests.cluster.props import Listener, VirtualTime, kubeconfig_for
from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    async with connect(kubeconfig_for(server.url, tmp_path), timeout_s=5.0) as made:
        yield made


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """What is logged with structlog."""
    with structlog.testing.capture_logs() as entries:
        yield entries
