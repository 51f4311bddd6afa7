"""A cluster that is given to the tests: used by its kubeconfig, and left as it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.testbed.api import ApiError, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import empty
from tests.testbed.given_cluster import GivenCluster, GivenClusterError
from tests.testbed.nodes import create_nodes, gpu_nodes

PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "any"}, "spec": {"containers": [{"name": "main", "image": "any"}]}}


@pytest.fixture
def given(cluster: ControlPlane, tmp_path: Path) -> Iterator[GivenCluster]:
    """The test bed's own, as one that is there already, with a node of its own."""
    cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "own"}})
    made = GivenCluster(tmp_path, cluster.kubeconfig)
    yield made
    made.stop()


@pytest.mark.e2e
def test_what_was_there_stays(given: GivenCluster) -> None:
    """The tests' own nodes become ready, and go; the cluster's stay, and keep nobody waiting."""
    given.start()
    create_nodes(given.api, gpu_nodes(2, 1))
    given.reset()
    empty(given)
    assert [node["metadata"]["name"] for node in given.api.items("/api/v1/nodes")] == ["own"]


@pytest.mark.e2e
def test_users_have_the_rights_that_rbac_gives_them(given: GivenCluster) -> None:
    """By a certificate that the cluster itself has signed."""
    given.start()
    stranger = given.api_as(given.client_certificate("stranger"))
    with pytest.raises(ApiError, match='User "stranger" cannot list'):
        stranger.items(PODS)
    stranger.close()
    scheduler = given.api_as(given.client_certificate("system:kube-scheduler"))
    assert scheduler.items(PODS) == []
    scheduler.close()


@pytest.mark.e2e
def test_a_cluster_in_use_is_refused(given: GivenCluster) -> None:
    """Its pods in namespace default would be deleted."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_until(lambda: given.api.exists(account), what=account)
    given.api.create(POD)
    with pytest.raises(GivenClusterError, match="has pods in namespace default"):
        given.start()


@pytest.mark.e2e
def test_what_only_a_test_bed_can_do_skips(given: GivenCluster) -> None:
    """With a line that says why."""
    given.start()
    with pytest.raises(pytest.skip.Exception, match="is not ours to stop"):
        given.stop_api_server()
    with pytest.raises(pytest.skip.Exception, match="not made to call this machine"):
        given.server_certificate("webhook")


def test_a_user_without_a_certificate_is_refused(tmp_path: Path) -> None:
    """The message names the file and what it lacks."""
    config = tmp_path / "config"
    told = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://a", "certificate-authority": "a"}}
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    config.write_text(yaml.safe_dump(told), encoding="utf-8")
    with pytest.raises(GivenClusterError, match=f"{config} has no client-certificate"):
        GivenCluster(tmp_path / "work", config)
