"""Fixtures of the cluster room's tests; the test bed provides the control plane."""

import pytest

from scheduler.cluster.api import connect
from tests.cluster.api_server import ApiServer
from tests.cluster.factories import kubeconfig_for
from tests.cluster.fakes import Listener, VirtualTime
from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]


TIMEOUT_S = 5.0


@pytest.fixture
async def server():
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


@pytest.fixture
async def api(server, tmp_path):
    async with connect(kubeconfig_for(server.url, tmp_path), timeout_s=TIMEOUT_S) as connected:
        yield connected


@pytest.fixture
def time():
    return VirtualTime()


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture(autouse=True)
def _loopback_http(loopback_http):
    pass
