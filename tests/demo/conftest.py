"""Fixtures of the demo's tests: an API server in memory, and the real client of it."""

import pytest

from scheduler.cluster.api import connect
from workbench.cluster.api_requests import KINDS
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.object_store import ObjectStore


@pytest.fixture
def store():
    return ObjectStore(KINDS)


@pytest.fixture
async def api(store, tmp_path, loopback_http):
    async with ApiServer(store, bookmark_s=0.01).serving() as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with connect(tmp_path / "kubeconfig", timeout_s=10.0) as connected:
            yield connected
