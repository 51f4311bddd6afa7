"""Tests on an external cluster: used through its kubeconfig, and unchanged afterwards."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.testbed import kubernetes_release
from tests.testbed.api import ApiError, wait_until
from tests.testbed.build_steps import BuildFailedError
from tests.testbed.control_plane import ControlPlane
from tests.testbed.external_cluster import ExternalCluster, ExternalClusterError
from tests.testbed.fixtures import empty
from tests.testbed.machine_requirements import IMAGE_VARIABLE
from tests.testbed.nodes import create_nodes, gpu_nodes

PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "any"}, "spec": {"containers": [{"name": "main", "image": "any"}]}}


def unschedulable(external: ExternalCluster) -> set[str]:
    """Return the names of unschedulable nodes."""
    with closing(external.api_as(external.admin)) as api:
        nodes = [node for node in api.items("/api/v1/nodes") if "unschedulable" in node["spec"]]
    return {node["metadata"]["name"] for node in nodes}


@pytest.fixture
def external(cluster: ControlPlane, tmp_path: Path) -> Iterator[ExternalCluster]:
    """The test bed's control plane as an external cluster with one node."""
    cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "own"}})
    external = ExternalCluster(tmp_path, cluster.kubeconfig)
    yield external
    external.stop()


@pytest.mark.e2e
def test_existing_nodes_stay(external: ExternalCluster) -> None:
    """The tests' nodes become ready and are deleted; the cluster's stay and delay no wait."""
    external.start()
    create_nodes(external.api, gpu_nodes(2, 1))
    external.reset()
    empty(external)
    assert [node["metadata"]["name"] for node in external.api.items("/api/v1/nodes")] == ["own"]


@pytest.mark.e2e
def test_existing_nodes_get_no_pod_of_the_tests(external: ExternalCluster) -> None:
    """Afterwards they are as before: a node that was unschedulable stays so."""
    external.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "drained"}})
    external.api.patch("/api/v1/nodes/drained", {"spec": {"unschedulable": True}})
    external.start()
    external.cordon()
    before = unschedulable(external)
    external.stop()
    assert (before, unschedulable(external)) == ({"own", "drained"}, {"drained"})


@pytest.mark.e2e
def test_rbac_decides_the_rights_of_users(external: ExternalCluster) -> None:
    """The cluster itself signs their certificates."""
    external.start()
    stranger = external.api_as(external.client_certificate("stranger"))
    with pytest.raises(ApiError, match='User "stranger" cannot list'):
        stranger.items(PODS)
    stranger.close()
    scheduler = external.api_as(external.client_certificate("system:kube-scheduler"))
    assert scheduler.items(PODS) == []
    scheduler.close()


@pytest.mark.e2e
def test_a_cluster_in_use_is_refused(external: ExternalCluster) -> None:
    """Tests would delete its pods in namespace default."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_until(lambda: external.api.exists(account), what=account)
    external.api.create(POD)
    with pytest.raises(ExternalClusterError, match="has pods in namespace default"):
        external.start()


@pytest.mark.e2e
def test_the_scheduler_is_of_the_cluster_s_release(
    external: ExternalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one does not know what the API server stores, such as shares of a device."""
    monkeypatch.delenv(kubernetes_release.VARIABLE, raising=False)
    monkeypatch.setenv(IMAGE_VARIABLE, "kindest/node:v1.36@sha256:0")
    with pytest.raises(BuildFailedError, match=r"1\.36 is no release"):
        external.start()


@pytest.mark.e2e
def test_operations_of_a_test_bed_skip(external: ExternalCluster) -> None:
    """The skip has a reason."""
    external.start()
    with pytest.raises(pytest.skip.Exception, match="tests cannot stop it"):
        external.stop_api_server()
    with pytest.raises(pytest.skip.Exception, match="audit log is not on this machine"):
        external.audit_log.read_text()
    with pytest.raises(pytest.skip.Exception, match="need not reach this machine"):
        external.server_certificate("webhook")


def test_a_user_without_a_certificate_is_refused(tmp_path: Path) -> None:
    """The message names the file and the missing entry."""
    config = tmp_path / "config"
    config.write_text("""
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://a", certificate-authority: a}}]
users: [{name: u, user: {token: t}}]
""")
    with pytest.raises(ExternalClusterError, match=f"{config} has no client-certificate"):
        ExternalCluster(tmp_path / "work", config)
