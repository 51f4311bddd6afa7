"""Tests on an external cluster: used through its kubeconfig, and unchanged afterwards."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.testbed.api import wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.external_cluster import ExternalCluster, ExternalClusterError
from tests.testbed.fixtures import empty
from tests.testbed.nodes import create_nodes
from workbench.cluster.mocked_nodes import gpu_nodes

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
def test_existing_nodes_stay_and_get_no_pod_of_the_tests(external: ExternalCluster) -> None:
    """Afterwards they are as before: a node that was unschedulable stays so."""
    external.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "drained"}})
    external.api.patch("/api/v1/nodes/drained", {"spec": {"unschedulable": True}})
    external.start()
    external.cordon()
    create_nodes(external.api, gpu_nodes(2, 1))
    before = unschedulable(external)
    external.reset()
    empty(external)
    external.stop()
    assert (before, unschedulable(external)) == ({"own", "drained"}, {"drained"})


@pytest.mark.e2e
def test_a_cluster_in_use_is_refused(external: ExternalCluster) -> None:
    """Tests would delete its pods in namespace default."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_until(lambda: external.api.exists(account), what=account)
    external.api.create(POD)
    with pytest.raises(ExternalClusterError, match="has pods in namespace default"):
        external.start()
