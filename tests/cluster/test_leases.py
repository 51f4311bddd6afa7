"""Leases: a write replaces the version that was read, or nothing."""

import pytest

from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterError
from scheduler.cluster.leases import LeaseClient
from workbench.cluster.api_requests import KINDS, LEASES
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.object_store import ObjectStore

DRAINED = "esg-scheduler.io/drained"


@pytest.fixture
def store():
    return ObjectStore(KINDS)


@pytest.fixture
async def api(store, tmp_path):
    async with ApiServer(store).serving() as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with connect(tmp_path / "kubeconfig") as connected:
            yield connected


@pytest.fixture
def leases(api):
    return LeaseClient(api, "esg", {"app": "gateway"}, timeout_s=10.0)


async def write(leases, version, holder="a", drained="false"):
    return await leases.write(
        "l", version=version, holder=holder, duration_s=2.5, annotations={DRAINED: drained}
    )


async def test_a_lease_is_created_once(store, leases):
    """A Lease is created if there is none; it says its holder and whole seconds."""
    assert await leases.read("l") is None
    created = await write(leases, None)
    assert (created.holder, created.duration_s, created.annotations) == ("a", 3, {DRAINED: "false"})
    assert await leases.read("l") == created
    assert await write(leases, None, "b") is None
    assert store.get(LEASES, ("esg", "l"))["metadata"]["labels"] == {"app": "gateway"}


async def test_a_write_replaces_one_version(leases):
    """One of two writes over the same version is stored."""
    created = await write(leases, None)
    renewed = await write(leases, created.version, "b", "true")
    assert await write(leases, created.version, "c") is None
    assert await leases.read("l") == renewed
    assert (renewed.holder, renewed.annotations) == ("b", {DRAINED: "true"})


async def test_a_free_lease_has_no_holder(store, leases):
    """Kubernetes takes no empty holder: the field is removed."""
    created = await write(leases, None)
    freed = await write(leases, created.version, holder="")
    assert freed.holder == ""
    assert "holderIdentity" not in store.get(LEASES, ("esg", "l"))["spec"]


async def test_a_deleted_lease_is_not_recreated_by_a_renewal(store, leases):
    """A renewal of a Lease that was deleted stores nothing."""
    created = await write(leases, None)
    store.delete(LEASES, ("esg", "l"))
    assert await write(leases, created.version) is None
    assert await leases.read("l") is None


async def test_no_answer_is_an_error(tmp_path):
    """Without an API server, nobody knows what is stored."""
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    async with connect(tmp_path / "kubeconfig") as api:
        with pytest.raises(ClusterError):
            await LeaseClient(api, "esg", {}).read("l")
